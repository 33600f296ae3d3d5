//! What the server answers, as far as people are shown it.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_workflow::Timestamp;

use super::moment::Moment;

/// A workflow in a list, or as it is shown.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Summary {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) tags: Vec<String>,
    pub(super) status: String,
    pub(super) created_at: Moment,
    pub(super) started_at: Option<Moment>,
    pub(super) finished_at: Option<Moment>,
    pub(super) expires_at: Option<Moment>,
    pub(super) jobs: Counts,
    /// Only when it was asked for.
    #[serde(default)]
    pub(super) jobs_list: Vec<Job>,
}

/// Jobs by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    pub(super) total: u64,
    pub(super) waiting: u64,
    pub(super) scheduled: u64,
    pub(super) ready: u64,
    pub(super) running: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) skipped: u64,
}

/// One job.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) handler: String,
    pub(super) queue: String,
    pub(super) state: String,
    pub(super) attempt: u64,
    #[serde(default)]
    pub(super) lost: u64,
    #[serde(default)]
    pub(super) retries: u64,
    #[serde(default)]
    pub(super) after: Vec<String>,
    pub(super) ready_at: Option<Moment>,
    pub(super) started_at: Option<Moment>,
    pub(super) finished_at: Option<Moment>,
    pub(super) due_at: Option<Moment>,
    pub(super) worker: Option<String>,
    pub(super) why_not_running: Option<Why>,
    // Only in full.
    pub(super) params: Option<Box<RawValue>>,
    pub(super) output: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) errors: Vec<AttemptError>,
}

/// Why a job is not running.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Why {
    pub(super) text: String,
}

/// What went wrong in an attempt.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct AttemptError {
    pub(super) attempt: u64,
    pub(super) at: Moment,
    pub(super) worker: Option<String>,
    pub(super) kind: String,
    pub(super) message: String,
    pub(super) trace: Option<String>,
}

/// One page of a list; what is in it stays text.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) items: Vec<Box<RawValue>>,
    pub(super) next_cursor: Option<String>,
}

/// What is said of a workflow after something was done to it.
#[derive(Debug, Deserialize)]
pub(super) struct Acted {
    pub(super) id: String,
    #[serde(default)]
    pub(super) name: Option<String>,
    pub(super) status: String,
    #[serde(default)]
    pub(super) existing: bool,
}

/// A queue.
#[derive(Debug, Deserialize)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) paused: bool,
    pub(super) ready: u64,
    pub(super) oldest_ready_at: Option<Moment>,
    pub(super) waiting_workers: u64,
}

/// Why the server did not do as asked.
#[derive(Debug, Deserialize)]
pub(super) struct Problem {
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) detail: String,
    pub(super) code: Option<String>,
    pub(super) path: Option<String>,
}

impl Summary {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "succeeded" | "failed" | "cancelled")
    }

    /// How long it ran, or runs by `now`.
    pub(super) fn duration(&self, now: Timestamp) -> Option<std::time::Duration> {
        Some(self.finished_at.map_or(now, |end| end.0).since(self.started_at?.0))
    }
}

impl Counts {
    /// Jobs that ended, whichever way.
    pub(super) fn over(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled + self.skipped
    }

    /// How much of the work is over, in percent; less than 100 until all is.
    pub(super) fn percent(&self) -> u64 {
        (100 * self.over()).checked_div(self.total).unwrap_or(100)
    }

    /// Words and numbers of the states that there are, what matters most first.
    pub(super) fn present(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let each = [
            ("failed", self.failed),
            ("running", self.running),
            ("ready", self.ready),
            ("scheduled", self.scheduled),
            ("waiting", self.waiting),
            ("cancelled", self.cancelled),
            ("skipped", self.skipped),
            ("succeeded", self.succeeded),
        ];
        each.into_iter().filter(|&(_, number)| number > 0)
    }

    /// Such as `1 failed, 2 running`, of the states that `wanted` names.
    pub(super) fn listed(&self, wanted: impl Fn(&str) -> bool) -> String {
        let wanted = self.present().filter(|(word, _)| wanted(word));
        wanted.map(|(word, number)| format!("{number} {word}")).collect::<Vec<_>>().join(", ")
    }
}

impl Job {
    /// How long its latest attempt took, or takes by `now`.
    pub(super) fn duration(&self, now: Timestamp) -> Option<std::time::Duration> {
        let end = match self.state.as_str() {
            "running" => now,
            _ => self.finished_at?.0,
        };
        Some(end.since(self.started_at?.0))
    }
}
