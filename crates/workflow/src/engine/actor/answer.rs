//! The answer of a desk to a request.

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
    /// The state of the request's job now.
    pub(crate) state: Option<JobState>,
    /// Whether the same event had happened before.
    pub(crate) already: bool,
    /// How long the attempt took that was reported.
    pub(crate) took: Option<Duration>,
    /// The attempts that it ended; none if nobody wants to know.
    pub(crate) ended: Vec<Ended>,
    /// Leases under limits that are over and go on, and when they end.
    pub(crate) spared: Vec<(LeaseRef, Timestamp)>,
    /// The jobs that are leased to the caller now.
    pub(crate) leased: Vec<Leased>,
    /// Another workflow has the idempotency key.
    pub(crate) existing: Option<WorkflowId>,
}

/// Most bytes of an error that a worker reports: kind, message and trace.
pub(crate) const ERROR_BYTES: usize = 33 << 10;

/// What a parent left behind.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) job: JobIndex,
    /// Its state, for a job that may run although not all of its parents have succeeded.
    pub(crate) state: Option<&'static str>,
    output_bytes: u32,
    /// None: it must be read from the store, if there is any.
    pub(crate) output: Option<Bytes>,
    /// Where its latest error is.
    pub(crate) error: Option<ResultField>,
}

impl Returned {
    /// What a job gets of a parent. None: nothing.
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

    /// What must be read from the store.
    pub(crate) fn missing(&self) -> impl Iterator<Item = ResultField> + use<> {
        let output = (self.output_bytes > 0 && self.output.is_none())
            .then_some(ResultField::Output(self.job));
        output.into_iter().chain(self.error)
    }

    /// How much of an answer its output and error take at most.
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
    /// The number of the lease. None: the store does not keep it.
    pub(crate) fence: u64,
    /// Whether it may be what kills its workers.
    pub(crate) suspect: bool,
    pub(crate) graph: Arc<Graph>,
    /// What its parents left behind.
    pub(crate) inputs: Vec<Returned>,
    /// Gives it back if it does not reach the worker.
    pub(crate) undelivered: UndeliveredLease,
}
