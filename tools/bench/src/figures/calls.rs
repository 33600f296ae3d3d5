//! The calls of a measured span of time.

use std::time::Duration;

use anyhow::ensure;

use super::answers::AnswerCounts;
use super::{Figures, millis};

/// Everything describes the time after the warm-up.
pub(crate) struct Calls {
    pub(crate) answers: AnswerCounts,
    pub(crate) elapsed: Duration,
    /// Calls of an open loop that were due at the end and had found no free caller.
    pub(crate) behind: u64,
}

/// Rate and times of calls that were all answered.
pub(crate) struct Latency {
    pub(crate) per_second: f64,
    pub(crate) mean_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Latency {
    /// Adds all to a row, with what tells these calls from others of the row.
    pub(crate) fn add_to(&self, row: &mut Figures<'_>, what: &str) {
        row.add(&format!("calls/s{what}"), 0, [self.per_second]);
        row.add(&format!("mean ms{what}"), 2, [self.mean_ms]);
        row.add(&format!("p99 ms{what}"), 2, [self.p99_ms]);
    }
}

impl Calls {
    pub(crate) fn per_second(&self) -> f64 {
        self.answers.decisions() as f64 / self.elapsed.as_secs_f64()
    }

    /// Fails when a call failed, or when calls were left behind: the others then say nothing.
    pub(crate) fn latency(&self) -> anyhow::Result<Latency> {
        let answers = &self.answers;
        ensure!(
            answers.failures() == 0,
            "calls failed: {:?}",
            answers.errors
        );
        ensure!(answers.decisions() > 0, "no call was answered");
        // A few are always just due.
        ensure!(
            self.behind * 20 < answers.decisions().max(200),
            "{} calls were due and not sent",
            self.behind
        );
        Ok(Latency {
            per_second: self.per_second(),
            mean_ms: millis(answers.mean()),
            p99_ms: millis(answers.percentile(99.0)),
        })
    }
}
