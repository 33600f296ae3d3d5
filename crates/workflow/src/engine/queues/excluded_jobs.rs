//! Jobs that a worker must not get again.

use hashbrown::HashSet;

use crate::codec::lease::LeaseRef;
use crate::codec::rows::ReadyKey;
use crate::id::{JobIndex, WorkflowId};

/// Jobs that a worker returned: it wants other ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExcludedJobs(HashSet<(WorkflowId, JobIndex)>);

impl ExcludedJobs {
    pub(crate) fn of(leases: &[LeaseRef]) -> Self {
        Self(
            leases
                .iter()
                .map(|lease| (lease.workflow, lease.job))
                .collect(),
        )
    }

    pub(crate) fn has(&self, workflow: WorkflowId, job: JobIndex) -> bool {
        !self.0.is_empty() && self.0.contains(&(workflow, job))
    }

    pub(super) fn allows(&self, head: &ReadyKey) -> bool {
        self.0.is_empty() || !self.0.contains(&(head.workflow(), head.job()))
    }

    pub(super) fn number(&self) -> usize {
        self.0.len()
    }
}
