//! The answer of an actor to a request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::ended::Ended;
use super::undelivered::UndeliveredLease;
use crate::codec::change::ResultField;
use crate::codec::lease::LeaseRef;
use crate::graph::Graph;
use crate::graph::definition::TriggerRule;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{JobState, Status};
use crate::time::Timestamp;
use crate::workflow::Workflow;
use crate::workflow::reachability::Reachability;

/// The answer to a request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Option<Status>,
    /// State of the job that the request names, afterwards.
    pub(crate) state: Option<JobState>,
    /// Whether the event had happened before.
    pub(crate) already: bool,
    /// Duration of the reported attempt.
    pub(crate) took: Option<Duration>,
    /// Attempts that the request ended. Empty without an observer of attempts.
    pub(crate) ended: Vec<Ended>,
    /// Leases under limits that continue past their end, because their workers could not extend
    /// them, and their new ends.
    pub(crate) spared: Vec<(LeaseRef, Timestamp)>,
    /// Jobs that are leased to the caller now.
    pub(crate) leased: Vec<Leased>,
    /// Another workflow that has the idempotency key.
    pub(crate) existing: Option<WorkflowId>,
}

/// Most bytes of an error that a worker reports: kind, message and trace.
pub(crate) const ERROR_BYTES: usize = 33 << 10;

/// Result of a parent, as an input of its child.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) job: JobIndex,
    /// State of the parent, if the child may run although not all of its parents have succeeded.
    pub(crate) state: Option<&'static str>,
    output_bytes: u32,
    /// `None` if the output must be read from the store, or if there is none.
    pub(crate) output: Option<Bytes>,
    /// Field of the parent's latest error, if its state is an error.
    pub(crate) error: Option<ResultField>,
}

impl Returned {
    /// Returns the input that a job gets from a parent. `None` if it gets none.
    pub(super) fn of(
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
            JobState::Waiting if workflow.prospect(job) == Reachability::Unreachable => {
                ("doomed", None)
            }
            JobState::Waiting if workflow.prospect(job) == Reachability::Blocked => {
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
    pub(crate) fn missing(&self) -> impl Iterator<Item = ResultField> + use<> {
        let output = (self.output_bytes > 0 && self.output.is_none())
            .then_some(ResultField::Output(self.job));
        output.into_iter().chain(self.error)
    }

    /// Returns the most bytes that the output and the error take of an answer.
    pub(crate) fn bytes(&self) -> usize {
        self.output_bytes as usize + if self.error.is_some() { ERROR_BYTES } else { 0 }
    }
}

/// A leased job, with those of its inputs that are in memory.
#[derive(Debug)]
pub(crate) struct Leased {
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
    pub(crate) inputs: Vec<Returned>,
    /// Releases the lease if it does not reach the worker.
    pub(crate) undelivered: UndeliveredLease,
}
