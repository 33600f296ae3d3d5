//! The reasons for refusing an event.

use thiserror::Error;

use super::{Reachability, Workflow};
use crate::model::{Job, JobIndex, JobState, LeaseEnd, Status};

/// The reason why an event was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The job is no longer leased to the caller.
    #[error("the lease on job '{job}' was lost ({reason}): the job is {state}; drop the result")]
    LeaseLost {
        /// The name of the job.
        job: String,
        /// The state of the job.
        state: &'static str,
        /// The reason: a word of [`crate::LeaseEnd`], `reported` if the lease ended with a report,
        /// `taken_over` if the job has had another lease, or `unknown`.
        reason: &'static str,
    },
    /// The job cannot be claimed.
    #[error("job '{job}' cannot be taken: it is {state}")]
    NotReady {
        /// The name of the job.
        job: String,
        /// The state of the job.
        state: &'static str,
    },
    /// The workflow has the wrong status for an action.
    #[error("cannot {verb} a workflow that is {status}{advice}")]
    WrongStatus {
        /// The action.
        verb: &'static str,
        /// The status of the workflow.
        status: &'static str,
        /// Advice for the caller.
        advice: &'static str,
    },
    /// A job has the wrong state for an action.
    #[error("cannot {verb} job '{job}', which is {state}{advice}")]
    WrongJobState {
        /// The action.
        verb: &'static str,
        /// The name of the job.
        job: String,
        /// The state of the job; `doomed` or `blocked` if it waits and cannot run because of a
        /// failure.
        state: &'static str,
        /// Advice for the caller.
        advice: &'static str,
    },
}

pub(crate) fn wrong_status(verb: &'static str, status: Status, advice: &'static str) -> Refusal {
    Refusal::WrongStatus {
        verb,
        status: status.word(),
        advice,
    }
}

/// The error for a token that is not that of the current lease.
pub(super) fn lease_lost(workflow: &Workflow, index: JobIndex, token: u64) -> Refusal {
    job_lease_lost(job_name(workflow, index), workflow.job(index), token)
}

/// The error for a token, for a job without its workflow.
pub(crate) fn job_lease_lost(name: String, job: &Job, token: u64) -> Refusal {
    let reason = match (job.state, job.ended_by) {
        _ if job.token == token && token != 0 => "reported",
        // The job has had one lease, and its token is another.
        (JobState::Running { .. }, _) if job.fence == 1 => "unknown",
        (JobState::Running { .. }, _) => "taken_over",
        (_, Some(end)) => end.word(),
        // The latest lease ended with a report, so the token is of an older lease.
        (_, None) if job.token != 0 && job.fence != 1 => "taken_over",
        (_, None) => "unknown",
    };
    Refusal::LeaseLost {
        job: name,
        state: job.state.word(),
        reason,
    }
}

/// The error for a lease that has ended, although no sweep has revoked it yet.
pub(super) fn lease_expired(workflow: &Workflow, index: JobIndex) -> Refusal {
    let state = workflow.job(index).state.word();
    Refusal::LeaseLost {
        job: job_name(workflow, index),
        state,
        reason: LeaseEnd::Expired.word(),
    }
}

pub(super) fn wrong_job(
    workflow: &Workflow,
    verb: &'static str,
    index: JobIndex,
    advice: &'static str,
) -> Refusal {
    let state = match (workflow.job(index).state, workflow.reachability(index)) {
        (JobState::Waiting, Reachability::Unreachable) => "doomed",
        (JobState::Waiting, Reachability::Blocked) => "blocked",
        (state, _) => state.word(),
    };
    Refusal::WrongJobState {
        verb,
        job: job_name(workflow, index),
        state,
        advice,
    }
}

pub(super) fn job_name(workflow: &Workflow, index: JobIndex) -> String {
    workflow.graph.jobs[index.index()].name.clone()
}
