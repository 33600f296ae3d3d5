//! The answer of an actor to a request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::assign::undelivered_lease::UndeliveredLease;
use super::commit::ended_attempt::EndedAttempt;
use crate::codec::ResultField;
use crate::graph::{Graph, TriggerRule};
use crate::machine::{Reachability, Workflow};
use crate::model::{JobIndex, JobState, LeaseRef, Status, Timestamp, WorkflowId};

/// The answer to a request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Option<Status>,
    /// State of the job that the request names, afterwards.
    pub(crate) state: Option<JobState>,
    /// Whether the event had happened before.
    pub(crate) already_done: bool,
    /// Duration of the reported attempt.
    pub(crate) duration: Option<Duration>,
    /// Attempts that the request ended. Empty without an observer of attempts.
    pub(crate) ended: Vec<EndedAttempt>,
    /// Leases under limits that continue past their end, because their workers could not extend
    /// them, and their new ends.
    pub(crate) overdue_leases: Vec<(LeaseRef, Timestamp)>,
    /// Jobs that are leased to the caller now.
    pub(crate) leased: Vec<LeasedJob>,
    /// Another workflow that has the idempotency key.
    pub(crate) existing: Option<WorkflowId>,
}

/// Most bytes of an error that a worker reports: kind, message and trace.
pub(crate) const MAX_ERROR_BYTES: usize = 33 << 10;

/// Result of a parent, as an input of its child.
#[derive(Debug)]
pub(crate) struct ParentResult {
    pub(crate) job: JobIndex,
    /// State of the parent, if the child may run although not all of its parents have succeeded.
    pub(crate) state: Option<&'static str>,
    output_bytes: u32,
    /// `None` if the output must be read from the store, or if there is none.
    pub(crate) output: Option<Bytes>,
    /// Field of the parent's latest error, if its state is an error.
    pub(crate) error: Option<ResultField>,
}

impl ParentResult {
    /// Returns the input that a job gets from a parent. `None` if it gets none.
    pub(super) fn from_parent(
        workflow: &Workflow,
        rule: TriggerRule,
        job: JobIndex,
        output: Option<Bytes>,
    ) -> Option<Self> {
        let output_bytes = workflow.job(job).output_bytes;
        if rule == TriggerRule::AllSuccess {
            return (output_bytes > 0).then_some(Self {
                job,
                state: None,
                output_bytes,
                output,
                error: None,
            });
        }
        let (state, error) = match workflow.job(job).state {
            JobState::Waiting if workflow.reachability(job) == Reachability::Unreachable => {
                ("doomed", None)
            }
            JobState::Waiting if workflow.reachability(job) == Reachability::Blocked => {
                ("blocked", None)
            }
            JobState::Failed => (JobState::Failed.word(), Some(workflow.latest_error(job))),
            state => (state.word(), None),
        };
        Some(Self {
            job,
            state: Some(state),
            output_bytes,
            output: output.filter(|_| output_bytes > 0),
            error,
        })
    }

    /// Returns the fields that must be read from the store.
    pub(crate) fn missing_fields(&self) -> impl Iterator<Item = ResultField> + use<> {
        let output = (self.output_bytes > 0 && self.output.is_none())
            .then_some(ResultField::Output(self.job));
        output.into_iter().chain(self.error)
    }

    /// Returns the most bytes that the output and the error take of an answer.
    pub(crate) fn max_bytes(&self) -> usize {
        self.output_bytes as usize
            + if self.error.is_some() {
                MAX_ERROR_BYTES
            } else {
                0
            }
    }
}

/// A leased job, with those of its inputs that are in memory.
#[derive(Debug)]
pub(crate) struct LeasedJob {
    pub(crate) job: JobIndex,
    pub(crate) token: u64,
    pub(crate) expires: Timestamp,
    pub(crate) attempt: u16,
    /// Number of the lease. Each lease of a job has a higher one than those before it.
    pub(crate) fence: u64,
    /// Whether the job may be the cause of crashes of its workers.
    pub(crate) suspect: bool,
    pub(crate) graph: Arc<Graph>,
    /// Results of its parents.
    pub(crate) inputs: Vec<ParentResult>,
    /// Releases the lease if it does not reach the worker.
    pub(crate) undelivered: UndeliveredLease,
}
