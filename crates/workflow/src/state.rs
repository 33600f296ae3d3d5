//! What a workflow and its jobs are doing, as the store keeps it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::graph::definition::Retention;
use crate::time::Timestamp;

/// What a workflow is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Created, not started.
    Pending,
    /// Started; jobs run as they become ready.
    Running,
    /// No job is handed out; running ones may finish.
    Paused,
    /// Over: every job succeeded or was skipped.
    Succeeded,
    /// Over: a job failed, and nothing more can run.
    Failed,
    /// Over: it was cancelled.
    Cancelled,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Paused, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// Whether nothing more happens by itself.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum JobState {
    /// It waits for the jobs before it, or is blocked by their failure.
    #[default]
    Waiting,
    /// It waits for a moment: the end of its delay, or its next retry.
    Scheduled {
        /// When it becomes ready.
        due: Timestamp,
    },
    /// It waits for a worker.
    Ready,
    /// A worker has it on lease.
    Running {
        /// When the lease ends unless it is extended.
        expires: Timestamp,
    },
    /// Over: a worker said so, or an operator.
    Succeeded,
    /// Over: its last attempt failed.
    Failed,
    /// Over: it was cancelled before its end.
    Cancelled,
    /// Over: it was passed over and will not run.
    Skipped,
}

impl JobState {
    /// The words for the states, in the order of [`Counts`].
    pub const WORDS: [&'static str; 8] =
        ["waiting", "scheduled", "ready", "running", "succeeded", "failed", "cancelled", "skipped"];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        Self::WORDS[self.place()]
    }

    /// Its place in [`Counts`].
    pub(crate) const fn place(self) -> usize {
        match self {
            Self::Waiting => 0,
            Self::Scheduled { .. } => 1,
            Self::Ready => 2,
            Self::Running { .. } => 3,
            Self::Succeeded => 4,
            Self::Failed => 5,
            Self::Cancelled => 6,
            Self::Skipped => 7,
        }
    }

    /// Whether it ended.
    #[must_use]
    pub const fn is_over(self) -> bool {
        self.place() >= 4
    }

    /// Whether something will happen to it without the jobs before it.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Scheduled { .. } | Self::Ready | Self::Running { .. })
    }
}

/// How many jobs are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts(pub(crate) [u16; 8]);

impl Counts {
    /// Word and number of each state.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u16)> + '_ {
        JobState::WORDS.into_iter().zip(self.0)
    }

    /// The number of jobs in the state that `word` names; 0 for other words.
    #[must_use]
    pub fn of(&self, word: &str) -> u16 {
        self.each().find(|&(known, _)| known == word).map_or(0, |(_, number)| number)
    }

    /// The number of jobs in all.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.iter().map(|&number| usize::from(number)).sum()
    }

    pub(crate) fn number(&self, state: JobState) -> u16 {
        self.0[state.place()]
    }

    /// Jobs that are scheduled, ready or running.
    pub(crate) fn active(&self) -> usize {
        self.0[1..4].iter().map(|&number| usize::from(number)).sum()
    }

    pub(crate) fn change(&mut self, from: JobState, to: JobState) {
        self.0[from.place()] -= 1;
        self.0[to.place()] += 1;
    }
}

/// The state of one job. A job that nothing has happened to is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Job {
    /// What it is doing.
    pub state: JobState,
    /// Attempts so far, the running one included; those lost with their worker and those given back do not count.
    pub attempt: u16,
    /// Leases that ended without a report. The fourth fails the job.
    pub lost: u16,
    /// Names the latest lease; 0 when there was none, or it was lost.
    pub token: u64,
    /// Who has or had it last.
    pub worker: Option<Box<str>>,
    /// When it last became ready.
    pub ready_at: Option<Timestamp>,
    /// When its latest attempt started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Bytes of what it returned; 0 is nothing, or null.
    pub output_bytes: u32,
}

/// What went wrong in an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// Which attempt, from 1.
    pub attempt: u16,
    /// When it ended.
    pub at: Timestamp,
    /// Who ran it.
    pub worker: Option<Box<str>>,
    /// What kind of error: a class of the worker's language, or `timeout` or `lost`.
    pub kind: String,
    /// What it says.
    pub message: String,
    /// Where it came from, if the worker says.
    pub trace: Option<String>,
}

/// The state of a workflow as a whole. Each write of the workflow changes it, so its bytes guard all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Grows by one with each write.
    pub version: u64,
    /// Random for each write: tells an engine whether a write whose answer was lost was its own.
    pub writer: u32,
    /// What it is doing.
    pub status: Status,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was first started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How long it is kept after its end, if the definition or a request says.
    pub retention: Option<Retention>,
    /// When it is removed; set while it is over.
    pub expires_at: Option<Timestamp>,
    /// When a sweep must look at it: at or before the first moment at which one of its jobs is due.
    pub timer: Option<Timestamp>,
    /// Jobs by state.
    pub counts: Counts,
}

/// How long workflows are kept that say nothing about it themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionDefaults {
    /// Succeeded ones.
    pub succeeded: Retention,
    /// Failed and cancelled ones.
    pub failed: Retention,
}

impl Default for RetentionDefaults {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self { succeeded: Retention::For(DAY * 7), failed: Retention::For(DAY * 30) }
    }
}

/// What a list shows of a workflow without reading its graph.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Label {
    /// The name of its kind.
    pub name: String,
    /// Its tags.
    pub tags: Vec<String>,
}
