//! The states of workflows and jobs, as stores keep them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Timestamp;
pub use super::job::Job;
pub use super::worker::WorkerName;

/// The status of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// The workflow was created and not started.
    Pending,
    /// The workflow was started; jobs run as they become ready.
    Running,
    /// Workers get no more jobs of it. Running jobs may finish.
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

    /// The name of the status in texts.
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
    /// The job waits for its parents, or is blocked by their failure.
    #[default]
    Waiting,
    /// The job waits for a time: the end of its delay, or its next retry.
    Scheduled {
        /// The time at which it becomes ready.
        due: Timestamp,
    },
    /// The job waits for a worker.
    Ready,
    /// A worker has leased the job.
    Running {
        /// The time at which the lease ends unless it is extended.
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

    /// The name of the state in texts.
    #[must_use]
    pub const fn word(self) -> &'static str {
        Self::WORDS[self.index()]
    }

    /// The index of the state in [`Counts`].
    pub(crate) const fn index(self) -> usize {
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

    /// Whether the job has ended.
    #[must_use]
    pub const fn is_over(self) -> bool {
        self.index() >= 4
    }

    /// Whether a worker has leased the job.
    #[must_use]
    pub const fn is_running(self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// Whether the state can change without a change of the parents.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(
            self,
            Self::Scheduled { .. } | Self::Ready | Self::Running { .. }
        )
    }
}

/// Number of jobs in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts(pub(crate) [u32; 8]);

impl Counts {
    /// The name and the count of each state.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        JobState::WORDS.into_iter().zip(self.0)
    }

    /// The number of jobs in the state `word`. 0 for other words.
    #[must_use]
    pub fn count_by_word(&self, word: &str) -> u32 {
        self.entries()
            .find(|&(known, _)| known == word)
            .map_or(0, |(_, number)| number)
    }

    /// The total number of jobs.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.iter().map(|&number| number as usize).sum()
    }

    pub(crate) fn count(&self, state: JobState) -> u32 {
        self.0[state.index()]
    }

    /// Number of jobs that are scheduled, ready or running.
    pub(crate) fn active(&self) -> usize {
        self.0[1..4].iter().map(|&number| number as usize).sum()
    }

    pub(crate) fn move_job(&mut self, from: JobState, to: JobState) {
        self.0[from.index()] -= 1;
        self.0[to.index()] += 1;
    }
}

/// The condition under which a job that ran or was skipped runs again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Rerun {
    /// The job does not run again. If its rule skipped it, the rule is applied again when its
    /// parents change.
    #[default]
    No,
    /// The job runs again when a parent fails, because a parent was reset since its latest attempt
    /// began.
    AfterFailure,
    /// The job runs again after its running attempt, because the event that started the attempt has
    /// happened again.
    AfterEnd,
    /// The job never runs again: an operator skipped it or marked it as succeeded.
    ByHand,
}

/// The reason why a lease ended without a report.
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

    /// The name of the reason in texts.
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
    /// The end of the attempt.
    pub at: Timestamp,
    /// The worker that ran it.
    pub worker: Option<WorkerName>,
    /// The kind of error: a class of the worker's language, `timeout`, `lost`, `crashed` or
    /// `poison`.
    pub kind: String,
    /// The message of the error.
    pub message: String,
    /// The stack trace, if the worker sent one.
    pub trace: Option<String>,
}

/// The state of a workflow without its jobs. Every write changes it, so comparing its bytes detects
/// any other write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// A number that increases by one with each write.
    pub version: u64,
    /// A random number of each write. After a lost answer it shows whether the stored write is the
    /// server's own.
    pub writer: u32,
    /// The status.
    pub status: Status,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The time of the first start.
    pub started_at: Option<Timestamp>,
    /// The time of the end.
    pub finished_at: Option<Timestamp>,
    /// Retention after the end. `None` for the default of the server.
    pub retention: Option<Retention>,
    /// The time of removal. It is set after the end.
    pub expires_at: Option<Timestamp>,
    /// The time at which a sweep must process the workflow: at or before the earliest time at which
    /// a job is due.
    pub timer: Option<Timestamp>,
    /// Numbers of jobs by state.
    pub counts: Counts,
}

impl Meta {
    /// Number of blocked jobs, if it follows from the counts. `None` if the jobs must be read.
    pub(crate) fn blocked(&self) -> Option<u32> {
        let waiting = self.counts.count(JobState::Waiting);
        let nothing_failed =
            self.counts.count(JobState::Failed) + self.counts.count(JobState::Cancelled) == 0;
        match () {
            // Waiting jobs of an ended workflow never run by themselves.
            () if self.status.is_over() || waiting == 0 => Some(waiting),
            () if nothing_failed => Some(0),
            () => None,
        }
    }

    /// Moves the timer to `due` if it is later or not set.
    pub(crate) fn set_timer_by(&mut self, due: Timestamp) {
        self.timer = Some(self.timer.map_or(due, |timer| timer.min(due)));
    }
}

/// The time for which a workflow is kept after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// This time.
    For(Duration),
    /// No end.
    Forever,
}

impl Retention {
    /// The time of removal if the retention begins at `start`. `None` for never.
    pub(crate) fn end(self, start: Timestamp) -> Option<Timestamp> {
        match self {
            Self::For(span) => Some(start + span),
            Self::Forever => None,
        }
    }
}

/// Retention of ended workflows whose definition has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionDefaults {
    /// Retention of succeeded workflows.
    pub succeeded: Retention,
    /// Retention of failed and cancelled workflows.
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

/// Name and tags of a workflow: lists show them without reading the graph.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Label {
    /// The name.
    pub name: String,
    /// The tags.
    pub tags: Vec<String>,
}
