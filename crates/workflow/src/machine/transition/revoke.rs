//! Revocation of leases.

use crate::machine::workflow::Workflow;
use crate::model::{JobIndex, JobState, LeaseEnd, Timestamp};

impl Workflow {
    /// Revokes the lease of a job, if it has one: the report of its worker will be refused with the
    /// reason `end`.
    pub(crate) fn revoke(&mut self, index: JobIndex, end: LeaseEnd) {
        if self.job(index).token != 0 {
            let job = self.job_mut(index);
            job.token = 0;
            job.ended_by = Some(end);
        }
    }
}

/// Cancels all jobs that have not ended.
pub(crate) fn cancel_rest(workflow: &mut Workflow, now: Timestamp) {
    for index in workflow.job_indexes() {
        if !workflow.job(index).state.is_over() {
            workflow.revoke(index, LeaseEnd::Cancelled);
            workflow.set_state(index, JobState::Cancelled, now);
        }
    }
    workflow.advance(now);
}
