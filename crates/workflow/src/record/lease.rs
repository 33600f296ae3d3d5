//! The name of a lease, and its text form.

use std::fmt;
use std::str::FromStr;

use crate::id::{InvalidId, JobIndex, WorkflowId};

/// Names a lease. Workers get it as text and send it with their reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The job in it.
    pub job: JobIndex,
    /// The number that distinguishes the leases of the job.
    pub token: u64,
}

impl fmt::Display for LeaseRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}-{:016x}", self.workflow, self.job, self.token)
    }
}

impl FromStr for LeaseRef {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId { text: text.chars().take(60).collect() };
        let mut parts = text.splitn(3, '-');
        let mut part = || parts.next().ok_or_else(invalid);
        let workflow = part()?.parse()?;
        let job = JobIndex(part()?.parse().map_err(|_| invalid())?);
        let token = u64::from_str_radix(part()?, 16).map_err(|_| invalid())?;
        Ok(Self { workflow, job, token })
    }
}
