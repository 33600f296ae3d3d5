//! Changes of a workflow that are not written yet.

use crate::codec::{Delete, ResultField};
use crate::model::{AttemptError, Job, JobIndex, Meta};

/// The changes since the latest write.
#[derive(Debug, Clone)]
pub(crate) struct PendingChange {
    /// The meta before the changes. The store has it, if the workflow is stored.
    pub(super) stored_meta: Meta,
    /// Changed jobs as the store has them, without duplicates.
    pub(super) stored_jobs: Vec<(JobIndex, Job)>,
    pub(super) results: Vec<(ResultField, Vec<u8>)>,
    pub(super) errors: Vec<(ResultField, AttemptError)>,
    pub(super) dropped_results: Vec<ResultField>,
    /// Jobs that became ready.
    pub(super) ready: Vec<JobIndex>,
    pub(super) delete: bool,
    /// Whether all records must be written again, also those that are written once.
    pub(super) rewrite_all: bool,
    /// If set, all rows must be written again. These rows are removed unless they follow from the
    /// state.
    pub(super) orphan_rows: Option<Delete>,
    /// Whether the idempotency key is missing, so that the parts that are written once must be
    /// written again.
    pub(super) key_is_lost: bool,
}

impl PendingChange {
    /// No changes since this meta was written.
    pub(super) fn since(stored_meta: Meta) -> Self {
        Self {
            stored_meta,
            stored_jobs: Vec::new(),
            results: Vec::new(),
            errors: Vec::new(),
            dropped_results: Vec::new(),
            ready: Vec::new(),
            delete: false,
            rewrite_all: false,
            orphan_rows: None,
            key_is_lost: false,
        }
    }

    /// Whether nothing but the meta may have to be written.
    pub(super) fn has_only_meta(&self) -> bool {
        let results = self.results.is_empty() && self.errors.is_empty();
        self.stored_jobs.is_empty()
            && results
            && self.orphan_rows.is_none()
            && !self.key_is_lost
            && !self.rewrite_all
    }

    /// Sorts the changed jobs by index.
    pub(super) fn sort(&mut self) {
        self.stored_jobs.sort_unstable_by_key(|&(job, _)| job);
    }

    /// A changed job as the store has it. Requires sorted jobs.
    pub(super) fn stored_jobs(&self, job: JobIndex) -> Option<&Job> {
        let at = self
            .stored_jobs
            .binary_search_by_key(&job, |&(job, _)| job)
            .ok()?;
        Some(&self.stored_jobs[at].1)
    }
}
