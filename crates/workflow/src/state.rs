//! The states of workflows and jobs, as the store keeps them.

mod job;
mod worker;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::job::Job;
pub use self::worker::Worker;
use crate::codec::change::Stamp;
use crate::graph::definition::Retention;
use crate::time::Timestamp;

/// The status of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Created, not started.
    Pending,
    /// Started; jobs run as they become ready.
    Running,
    /// Workers get no more of its jobs. Running jobs may finish.
    Paused,
    /// Ended: every job succeeded or was skipped.
    Succeeded,
    /// Ended: a job failed, and no other job can run.
    Failed,
    /// Ended: it was cancelled.
    Cancelled,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Running,
        Self::Paused,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether the workflow has ended.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Its name in texts.
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

/// The state of a job.
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
    /// A worker has leased it.
    Running {
        /// When the lease ends unless it is extended.
        expires: Timestamp,
    },
    /// Ended: a worker reported success, or an operator marked it as succeeded.
    Succeeded,
    /// Ended: its last attempt failed.
    Failed,
    /// Ended: it was cancelled.
    Cancelled,
    /// Ended: it was skipped and will not run.
    Skipped,
}

impl JobState {
    /// The names of the states, in the order of [`Counts`].
    pub const WORDS: [&'static str; 8] = [
        "waiting",
        "scheduled",
        "ready",
        "running",
        "succeeded",
        "failed",
        "cancelled",
        "skipped",
    ];

    /// Its name in texts.
    #[must_use]
    pub const fn word(self) -> &'static str {
        Self::WORDS[self.place()]
    }

    /// Its position in [`Counts`].
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

    /// Whether it can change without a change of the jobs before it.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(
            self,
            Self::Scheduled { .. } | Self::Ready | Self::Running { .. }
        )
    }
}

/// How many jobs are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts(pub(crate) [u32; 8]);

impl Counts {
    /// The name and the number of each state.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        JobState::WORDS.into_iter().zip(self.0)
    }

    /// The number of jobs in the state with the name `word`. 0 for other words.
    #[must_use]
    pub fn of(&self, word: &str) -> u32 {
        self.each()
            .find(|&(known, _)| known == word)
            .map_or(0, |(_, number)| number)
    }

    /// The number of all jobs.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.iter().map(|&number| number as usize).sum()
    }

    pub(crate) fn number(&self, state: JobState) -> u32 {
        self.0[state.place()]
    }

    /// Jobs that are scheduled, ready or running.
    pub(crate) fn active(&self) -> usize {
        self.0[1..4].iter().map(|&number| number as usize).sum()
    }

    pub(crate) fn change(&mut self, from: JobState, to: JobState) {
        self.0[from.place()] -= 1;
        self.0[to.place()] += 1;
    }
}

/// Whether a job that has run, or was skipped, runs again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Rerun {
    /// It does not. If it is skipped, its rule skipped it, and is judged again when the jobs before
    /// it change.
    #[default]
    No,
    /// It does when a job before it fails: since its latest attempt began, one of them was opened
    /// again.
    AfterFailure,
    /// It does when its running attempt has ended: what that attempt reacted to has happened again.
    AfterEnd,
    /// It never does: an operator skipped it or marked it as succeeded.
    ByHand,
}

/// Why a lease ended without a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseEnd {
    /// The worker did not report or extend the lease in time.
    Expired,
    /// The attempt took longer than the timeout of the job.
    TimedOut,
    /// The job, or its workflow, was cancelled.
    Cancelled,
    /// An operator skipped the job or marked it as succeeded.
    EndedByHand,
    /// An operator restarted the job.
    Restarted,
}

impl LeaseEnd {
    pub(crate) const ALL: [Self; 5] = [
        Self::Expired,
        Self::TimedOut,
        Self::Cancelled,
        Self::EndedByHand,
        Self::Restarted,
    ];

    /// Its name in texts.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::EndedByHand => "ended_by_hand",
            Self::Restarted => "restarted",
        }
    }
}

/// The error of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// The number of the attempt, from 1.
    pub attempt: u16,
    /// When it ended.
    pub at: Timestamp,
    /// The worker that ran it.
    pub worker: Option<Worker>,
    /// The kind of error: a class of the worker's language, `timeout`, `lost`, `crashed` or
    /// `poison`.
    pub kind: String,
    /// Its message.
    pub message: String,
    /// Its stack trace, if the worker sent one.
    pub trace: Option<String>,
}

/// The state of a workflow without its jobs. Every write changes it, so comparing its bytes detects
/// any other write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Increases by one with each write.
    pub version: u64,
    /// A random number for each write. After a lost answer it shows whether the stored write is the
    /// server's own.
    pub writer: u32,
    /// Its state.
    pub status: Status,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was first started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How long it is kept after its end, if the definition or a request says.
    pub retention: Option<Retention>,
    /// When it is removed. Set after its end.
    pub expires_at: Option<Timestamp>,
    /// When a sweep must look at it: at or before the first moment at which one of its jobs is due.
    pub timer: Option<Timestamp>,
    /// Jobs by state.
    pub counts: Counts,
}

impl Meta {
    /// How many jobs are blocked, as far as the numbers of jobs tell it.
    pub(crate) fn blocked(&self) -> Option<u32> {
        let waiting = self.counts.number(JobState::Waiting);
        let nothing_failed =
            self.counts.number(JobState::Failed) + self.counts.number(JobState::Cancelled) == 0;
        match () {
            // In a workflow that is over, nothing that waits will run by itself.
            () if self.status.is_over() || waiting == 0 => Some(waiting),
            () if nothing_failed => Some(0),
            () => None,
        }
    }

    /// The write that made it.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            version: self.version,
            writer: self.writer,
        }
    }
}

/// How long ended workflows are kept, unless they say so themselves.
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
        Self {
            succeeded: Retention::For(DAY * 7),
            failed: Retention::For(DAY * 30),
        }
    }
}

/// What a list shows of a workflow without reading its graph.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: Vec<String>,
}
