//! The reference to a lease, and its text form.

use std::fmt;
use std::str::FromStr;

use super::{InvalidId, JobIndex, WorkflowId};

/// Identifies a lease. Workers receive it as text and send it with their reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The job in it.
    pub job: JobIndex,
    /// The number that distinguishes the leases of the job.
    pub token: u64,
}

impl LeaseRef {
    /// The lease of another job of the workflow that is claimed with the report of this lease. A
    /// report that is repeated because its answer was lost finds that job again.
    #[must_use]
    pub fn successor(self, job: JobIndex) -> Self {
        // The finalizer of splitmix64, https://prng.di.unimi.it/splitmix64.c, spreads every bit of
        // the token.
        let mut mixed = self
            .token
            .wrapping_add((u64::from(job.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Token 0 means no lease.
        Self {
            job,
            token: (mixed ^ (mixed >> 31)).max(1),
            ..self
        }
    }

    /// The text form that workers receive. It is written by hand because `format!` costs several
    /// times as much, and every claim answer holds some.
    #[must_use]
    pub fn text(self) -> String {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        self.workflow.push_to(&mut text);
        text.push('-');
        text.push_str(itoa::Buffer::new().format(self.job.0));
        text.push('-');
        for byte in self.token.to_be_bytes() {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }
}

impl fmt::Display for LeaseRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text())
    }
}

impl FromStr for LeaseRef {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            text: text.chars().take(60).collect(),
        };
        let mut parts = text.splitn(3, '-');
        let mut part = || parts.next().ok_or_else(invalid);
        let workflow = part()?.parse()?;
        let job = JobIndex(part()?.parse().map_err(|_| invalid())?);
        let token = u64::from_str_radix(part()?, 16).map_err(|_| invalid())?;
        Ok(Self {
            workflow,
            job,
            token,
        })
    }
}
