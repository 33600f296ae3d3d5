//! The changes of a workflow that are not written yet.

use crate::codec::change::{Delete, ResultField};
use crate::id::JobIndex;
use crate::state::{AttemptError, Job, Meta};

/// What changed since the last write.
#[derive(Debug, Clone)]
pub(super) struct PendingChange {
    /// The meta before it. The store has it, if the workflow is stored.
    pub(super) stored_meta: Meta,
    /// Jobs that changed, as the store has them, each once.
    pub(super) stored_jobs: Vec<(JobIndex, Job)>,
    pub(super) results: Vec<(ResultField, Vec<u8>)>,
    pub(super) errors: Vec<(ResultField, AttemptError)>,
    pub(super) dropped_results: Vec<ResultField>,
    /// Jobs that became ready.
    pub(super) ready: Vec<JobIndex>,
    pub(super) delete: bool,
    /// What is written once is to be written again.
    pub(super) rewrite: bool,
    /// All rows are to be written again, and these are not to be there unless they follow from the
    /// state.
    pub(super) orphan_rows: Option<Delete>,
    /// What is written once is to be written again, because the idempotency key is not there.
    pub(super) key_is_lost: bool,
}

impl PendingChange {
    /// Nothing, after this meta was written.
    pub(super) fn since(stored_meta: Meta) -> Self {
        Self {
            stored_meta,
            stored_jobs: Vec::new(),
            results: Vec::new(),
            errors: Vec::new(),
            dropped_results: Vec::new(),
            ready: Vec::new(),
            delete: false,
            rewrite: false,
            orphan_rows: None,
            key_is_lost: false,
        }
    }

    /// Whether nothing is to be written but the meta, if that changed.
    pub(super) fn is_nothing(&self) -> bool {
        let results = self.results.is_empty() && self.errors.is_empty();
        self.stored_jobs.is_empty()
            && results
            && self.orphan_rows.is_none()
            && !self.key_is_lost
            && !self.rewrite
    }

    /// Puts the changed jobs in the order of their places.
    pub(super) fn sort(&mut self) {
        self.stored_jobs.sort_unstable_by_key(|&(job, _)| job);
    }

    /// A job as the store has it, if it changed. They are sorted.
    pub(super) fn stored_jobs(&self, job: JobIndex) -> Option<&Job> {
        let at = self
            .stored_jobs
            .binary_search_by_key(&job, |&(job, _)| job)
            .ok()?;
        Some(&self.stored_jobs[at].1)
    }
}
