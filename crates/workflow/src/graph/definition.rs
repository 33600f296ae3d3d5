//! The definition of a workflow: jobs and their order. It is not checked here;
//! [`crate::Graph::build`] does that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{Json, Retention};

/// The queue of a job without a queue.
pub const DEFAULT_QUEUE: &str = "default";
/// The default number of lost leases in a row that are tried again.
pub const DEFAULT_MAX_LOST: u16 = 3;

/// A graph of jobs as its author describes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Definition {
    /// The name of the workflow. Many workflows may have the same name.
    pub name: String,
    /// The jobs, in any order.
    pub jobs: Vec<JobDefinition>,
    /// A JSON object for every job. The params of a job take precedence.
    pub globals: Option<Json>,
    /// Words by which workflows are filtered.
    pub tags: Vec<String>,
    /// The effect of a job's failure on other jobs.
    pub on_failure: OnFailure,
    /// Retention after the end. `None` for the default of the server.
    pub retention: Option<Retention>,
    /// If a workflow with this key exists, it is returned and none is created.
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
    /// The delay after the end of its parents.
    pub wait: Duration,
    /// Jobs with a higher priority are claimed first.
    pub priority: u8,
    /// The time and the number of retries after failures.
    pub retry: Retry,
    /// Lost leases in a row that are tried again. The next one fails the job.
    pub max_lost: u16,
    /// The maximum time of an attempt; longer attempts fail.
    pub timeout: Option<Duration>,
    /// The outcomes of parents with which the job runs.
    pub rule: TriggerRule,
    /// Names of its parents.
    pub after: Vec<String>,
    /// Names of its children.
    pub before: Vec<String>,
    /// The limits that must all have room before the job runs.
    pub limits: Vec<LimitDefinition>,
}

/// A limit of a job as its author describes it. A value that begins with `$.` is a path in the
/// params of the job or the globals of the workflow. A further dollar sign in front makes it text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitDefinition {
    /// Units of a rate limit that also counts requests of the gateway.
    Units {
        /// The domain of the limiter's configuration.
        domain: String,
        /// The entries of the descriptor.
        entries: Vec<(String, String)>,
        /// Units of each attempt.
        hits: u32,
    },
    /// A maximum of jobs that run at the same time.
    Concurrency {
        /// The maximum of running jobs.
        most: u32,
        /// The jobs that are counted.
        of: ConcurrencyScope,
        /// Jobs with different entries are counted separately.
        entries: Vec<(String, String)>,
    },
}

impl LimitDefinition {
    /// Converts the limit into its entries.
    #[must_use]
    pub fn into_entries(self) -> Vec<(String, String)> {
        match self {
            Self::Units { entries, .. } | Self::Concurrency { entries, .. } => entries,
        }
    }
}

/// The jobs that a concurrency limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConcurrencyScope {
    /// Jobs of the same workflow.
    Workflow,
    /// Jobs of the same queue.
    Queue,
    /// All jobs of the store.
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

/// Retries of a job after failures. The n-th retry follows after `backoff * 2^(n-1)`, but at most
/// after `backoff_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retry {
    /// The maximum number of retries. 0 means none.
    pub limit: u16,
    /// The back-off before the first retry.
    pub backoff: Duration,
    /// The maximum back-off.
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
    /// The back-off before retry number `retry`, which counts from 1.
    #[must_use]
    pub fn pause(&self, retry: u16) -> Duration {
        let factor = 1_u32
            .checked_shl(u32::from(retry.saturating_sub(1)))
            .unwrap_or(u32::MAX);
        self.backoff.saturating_mul(factor).min(self.backoff_max)
    }
}

/// The outcomes of parents with which a job runs. A job that cannot run because of a failure is
/// unreachable until all parents have ended, and then blocked. It runs when a retry of the failed
/// job succeeds. A job that cannot run although nothing failed is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum TriggerRule {
    /// All parents succeeded.
    #[default]
    AllSuccess,
    /// All parents ended, in any way. A blocked parent has ended, an unreachable one has not.
    AllDone,
    /// One parent succeeded; the job does not wait for the others.
    AnySuccess,
    /// One parent failed, or cannot run because of a failure; the job does not wait for the others.
    AnyFailed,
    /// All parents succeeded or were skipped.
    NoneFailed,
}

/// The effect of a job's failure on other jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnFailure {
    /// Independent jobs continue.
    #[default]
    Continue,
    /// All jobs that have not ended are cancelled.
    FailFast,
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
