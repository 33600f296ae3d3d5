//! The JSON of Gush: workflows and jobs.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::{Job, JobState, Timestamp};

/// The value of `gush.workflows.<id>`, without fields that follow from the jobs.
#[derive(Debug, Deserialize)]
pub(super) struct GushWorkflow {
    pub(super) klass: String,
    pub(super) globals: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) stopped: bool,
}

/// The value of a job. Times are in seconds.
#[derive(Debug, Deserialize)]
pub(super) struct GushJob {
    pub(super) id: String,
    pub(super) klass: String,
    pub(super) queue: Option<String>,
    #[serde(default)]
    pub(super) incoming: Vec<String>,
    #[serde(default)]
    pub(super) outgoing: Vec<String>,
    pub(super) finished_at: Option<f64>,
    pub(super) enqueued_at: Option<f64>,
    pub(super) started_at: Option<f64>,
    pub(super) failed_at: Option<f64>,
    pub(super) params: Option<Box<RawValue>>,
    pub(super) output_payload: Option<Box<RawValue>>,
    pub(super) wait: Option<f64>,
}

impl GushJob {
    /// The full name of the job in Gush.
    pub(super) fn name(&self) -> String {
        format!("{}|{}", self.klass, self.id)
    }

    /// The state of the job. Gush clears only the time of a failure when a job starts again, so the
    /// order of these checks matters. A job that started after it finished is running.
    fn state(&self) -> JobState {
        let runs_again = self.started_at > self.finished_at && self.failed_at.is_none();
        if self.failed_at.is_some() {
            JobState::Failed
        } else if self.finished_at.is_some() && !runs_again {
            JobState::Succeeded
        } else if self.enqueued_at.is_none() && self.started_at.is_none() {
            JobState::Waiting
        } else {
            JobState::Ready
        }
    }

    pub(super) fn imported(&self, now: Timestamp) -> Job {
        let state = self.state();
        let moment = |at: Option<f64>| at.map(seconds);
        Job {
            state,
            attempt: u16::from(state.is_over()),
            ready_at: moment(self.enqueued_at)
                .or(moment(self.started_at))
                .or((state == JobState::Ready).then_some(now)),
            started_at: moment(self.started_at).filter(|_| state.is_over()),
            finished_at: moment(self.finished_at).filter(|_| state.is_over()),
            ..Job::default()
        }
    }
}

/// A time in seconds from Gush or Redis.
pub(super) fn seconds(at: f64) -> Timestamp {
    Timestamp::from_micros((at.max(0.0) * 1e6).round() as u64)
}
