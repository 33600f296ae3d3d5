//! Why an event does not take place.

use thiserror::Error;

use crate::id::JobIndex;
use crate::state::Status;
use crate::workflow::Workflow;

/// Why an event did not take place. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The job is no longer leased to who says so.
    #[error("the lease on job '{job}' was lost: the job is {state}; drop the result")]
    LeaseLost {
        /// The job's name.
        job: String,
        /// What it is doing now.
        state: &'static str,
    },
    /// The job cannot be taken.
    #[error("job '{job}' cannot be taken: it is {state}")]
    NotReady {
        /// The job's name.
        job: String,
        /// What it is doing now.
        state: &'static str,
    },
    /// The workflow is in the wrong state.
    #[error("cannot {verb} a workflow that is {status}{advice}")]
    WrongStatus {
        /// What was asked.
        verb: &'static str,
        /// What it is doing.
        status: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// A job is in the wrong state.
    #[error("cannot {verb} job '{job}', which is {state}{advice}")]
    WrongJobState {
        /// What was asked.
        verb: &'static str,
        /// The job's name.
        job: String,
        /// What it is doing.
        state: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
}

pub(super) fn wrong_status(verb: &'static str, status: Status, advice: &'static str) -> Refusal {
    Refusal::WrongStatus { verb, status: status.word(), advice }
}

pub(super) fn wrong_job(workflow: &Workflow, verb: &'static str, index: JobIndex, advice: &'static str) -> Refusal {
    let state = workflow.job(index).state.word();
    Refusal::WrongJobState { verb, job: name(workflow, index), state, advice }
}

pub(super) fn name(workflow: &Workflow, index: JobIndex) -> String {
    workflow.graph.jobs[index.index()].name.clone()
}
