//! What a caller asks for: jobs, and which runs after which. Nothing here is checked;
//! [`crate::Graph::build`] does that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::Json;

/// The queue of a job without a queue.
pub const DEFAULT_QUEUE: &str = "default";
/// The lost leases in a row that are tried again of a job that does not say how many.
pub const DEFAULT_MAX_LOST: u16 = 3;

/// A graph of jobs as its author describes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Definition {
    /// The name of the workflow. Many workflows may have the same name.
    pub name: String,
    /// The jobs, in any order.
    pub jobs: Vec<JobDefinition>,
    /// A JSON object for every job. Params of the job take precedence.
    pub globals: Option<Json>,
    /// Words by which the workflow can be found.
    pub tags: Vec<String>,
    /// What the failure of one job means for the others.
    pub on_failure: OnFailure,
    /// How long it is kept after its end. None: as the server's settings say.
    pub retention: Option<Retention>,
    /// With the key of an existing workflow, none is created: the existing one is returned.
    pub idempotency_key: Option<String>,
}

/// One job as its author describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobDefinition {
    /// Unique in its workflow.
    pub name: String,
    /// The name of the code that a worker runs.
    pub handler: String,
    /// A JSON object for the handler.
    pub params: Option<Json>,
    /// The queue. Workers name the queues that they serve.
    pub queue: String,
    /// How long it waits after the jobs before it have ended.
    pub wait: Duration,
    /// Jobs of a higher priority are taken first.
    pub priority: u8,
    /// When and how often it runs again after a failure.
    pub retry: Retry,
    /// How many lost leases in a row are tried again. The next one fails the job.
    pub max_lost: u16,
    /// An attempt that takes longer fails.
    pub timeout: Option<Duration>,
    /// Which outcomes of the jobs before it let it run.
    pub rule: TriggerRule,
    /// Names of jobs that it runs after.
    pub after: Vec<String>,
    /// Names of jobs that it runs before.
    pub before: Vec<String>,
    /// What it must be given before it runs: all of them at once, or none.
    pub limits: Vec<LimitDefinition>,
}

/// A limit of a job as its author describes it. A value that begins with `$.` is a path in the
/// params of the job or the globals of its workflow; with one more dollar sign in front it is text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitDefinition {
    /// Units of a rate limit, which requests through the gateway take, too.
    Units {
        /// The domain of the limiter's configuration.
        domain: String,
        /// The entries of the descriptor.
        entries: Vec<(String, String)>,
        /// How many units each attempt takes.
        hits: u32,
    },
    /// A bound of the jobs that run at the same time.
    Concurrency {
        /// How many may run.
        most: u32,
        /// Among which jobs.
        of: Scope,
        /// Jobs with other entries are bounded apart.
        entries: Vec<(String, String)>,
    },
}

impl LimitDefinition {
    /// Its entries alone.
    #[must_use]
    pub fn into_entries(self) -> Vec<(String, String)> {
        match self {
            Self::Units { entries, .. } | Self::Concurrency { entries, .. } => entries,
        }
    }
}

/// Among which jobs those are counted that run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Those of the same workflow.
    Workflow,
    /// Those of the same queue.
    Queue,
    /// All of the store.
    All,
}

impl JobDefinition {
    /// A job with a name, a handler, and defaults for everything else.
    pub fn new(name: impl Into<String>, handler: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            handler: handler.into(),
            params: None,
            queue: DEFAULT_QUEUE.to_owned(),
            wait: Duration::ZERO,
            priority: 0,
            retry: Retry::default(),
            max_lost: DEFAULT_MAX_LOST,
            timeout: None,
            rule: TriggerRule::default(),
            after: Vec::new(),
            before: Vec::new(),
            limits: Vec::new(),
        }
    }
}

/// When and how often a job runs again after a failure: the n-th retry after `backoff * 2^(n-1)`,
/// but at most after `backoff_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retry {
    /// The highest number of retries. 0: none.
    pub limit: u16,
    /// The pause before the first retry.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            limit: 0,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(3_600),
        }
    }
}

impl Retry {
    /// The pause before retry number `retry`, which counts from 1.
    #[must_use]
    pub fn pause(&self, retry: u16) -> Duration {
        let factor = 1_u32
            .checked_shl(u32::from(retry.saturating_sub(1)))
            .unwrap_or(u32::MAX);
        self.backoff.saturating_mul(factor).min(self.backoff_max)
    }
}

/// Which outcomes of the jobs before it let a job run. If it cannot run because of a failure, it is
/// doomed until all of them have ended and then blocked, and it runs when a retry of the failed job
/// succeeds. If it cannot run although nothing failed, it is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum TriggerRule {
    /// All of them succeeded.
    #[default]
    AllSuccess,
    /// All of them ended, no matter how. One that is blocked has ended, one that is doomed has not.
    AllDone,
    /// One of them succeeded; the others are not waited for.
    AnySuccess,
    /// One of them failed, or cannot run because of a failure; the others are not waited for.
    AnyFailed,
    /// All of them succeeded or were skipped.
    NoneFailed,
}

/// What the failure of one job means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnFailure {
    /// Jobs that do not depend on it continue.
    #[default]
    Continue,
    /// All jobs that have not ended are cancelled.
    FailFast,
}

/// How long a workflow is kept after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// This long.
    For(Duration),
    /// For ever.
    Forever,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let check = |backoff: u64, most: u64, pauses: &[(u16, u64)]| {
            let backoff = Duration::from_millis(backoff);
            let backoff_max = Duration::from_millis(most);
            let retry = Retry {
                limit: 0,
                backoff,
                backoff_max,
            };
            for &(number, expected) in pauses {
                assert_eq!(
                    retry.pause(number),
                    Duration::from_millis(expected),
                    "retry {number}"
                );
            }
        };
        check(
            100,
            1_000,
            &[
                (1, 100),
                (2, 200),
                (3, 400),
                (4, 800),
                (5, 1_000),
                (40, 1_000),
                (u16::MAX, 1_000),
            ],
        );
        check(100, 50, &[(1, 50), (2, 50)]);
        check(0, 1_000, &[(1, 0), (u16::MAX, 0)]);
        check(1, u64::MAX, &[(32, 1 << 31), (33, u64::from(u32::MAX))]);
        let endless = Retry {
            limit: 1,
            backoff: Duration::MAX,
            backoff_max: Duration::MAX,
        };
        assert_eq!(endless.pause(3), Duration::MAX);
    }

    #[test]
    fn a_new_job_is_tried_once_in_the_default_queue() {
        let job = JobDefinition::new("fetch", "http.get");
        assert_eq!(
            (job.queue.as_str(), job.retry.limit, job.rule),
            (DEFAULT_QUEUE, 0, TriggerRule::AllSuccess)
        );
        assert_eq!(
            (job.wait, job.timeout, job.priority),
            (Duration::ZERO, None, 0)
        );
    }
}
