//! Jobs that a worker must not get again.

use hashbrown::HashSet;

use crate::codec::rows::ReadyKey;
use crate::model::id::{JobIndex, WorkflowId};
use crate::model::lease_ref::LeaseRef;

/// Jobs that a worker returned: it wants other ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExcludedJobs(HashSet<(WorkflowId, JobIndex)>);

impl ExcludedJobs {
    pub(crate) fn from_leases(leases: &[LeaseRef]) -> Self {
        Self(
            leases
                .iter()
                .map(|lease| (lease.workflow, lease.job))
                .collect(),
        )
    }

    pub(crate) fn contains(&self, workflow: WorkflowId, job: JobIndex) -> bool {
        !self.0.is_empty() && self.0.contains(&(workflow, job))
    }

    pub(crate) fn allows(&self, ready_key: &ReadyKey) -> bool {
        self.0.is_empty() || !self.0.contains(&(ready_key.workflow(), ready_key.job()))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}
