//! The calls of a measured span of time.

use std::time::Duration;

use anyhow::ensure;

use super::answers::AnswerCounts;
use super::{RowFigures, millis};

/// The calls after the warm-up.
pub(crate) struct Calls {
    pub(crate) answers: AnswerCounts,
    pub(crate) elapsed: Duration,
    /// Number of calls of an open loop that were due at the end and had found no free caller.
    pub(crate) behind: u64,
}

/// Rate and times of calls that were all answered.
pub(crate) struct Latency {
    pub(crate) per_second: f64,
    pub(crate) mean_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Latency {
    /// Adds all figures to a row. `what` distinguishes these calls from others of the row.
    pub(crate) fn add_to(&self, row: &mut RowFigures<'_>, what: &str) {
        row.add(&format!("calls/s{what}"), 0, self.per_second);
        row.add(&format!("mean ms{what}"), 2, self.mean_ms);
        row.add(&format!("p99 ms{what}"), 2, self.p99_ms);
    }
}

impl Calls {
    pub(crate) fn per_second(&self) -> f64 {
        self.answers.decisions() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the figures. Fails if a call failed, or if calls were due and not sent: the figures
    /// would be misleading.
    pub(crate) fn latency(&self) -> anyhow::Result<Latency> {
        let answers = &self.answers;
        ensure!(
            answers.failures() == 0,
            "calls failed: {:?}",
            answers.errors
        );
        ensure!(answers.decisions() > 0, "no call was answered");
        // A few calls are always just due.
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
