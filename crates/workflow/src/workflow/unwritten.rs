//! The changes of a workflow that are not written yet.

use hashbrown::HashMap;

use crate::id::JobIndex;
use crate::record::change::{Delete, ResultField};
use crate::state::{AttemptError, Job};

/// What changed since the last write.
#[derive(Debug, Clone, Default)]
pub(super) struct Unwritten {
    /// Jobs that changed, as the store has them.
    pub(super) before: HashMap<JobIndex, Job>,
    pub(super) results: Vec<(ResultField, Vec<u8>)>,
    pub(super) errors: Vec<(ResultField, AttemptError)>,
    pub(super) dropped_results: Vec<ResultField>,
    /// Jobs that became ready.
    pub(super) ready: Vec<JobIndex>,
    pub(super) delete: bool,
    /// What is written once is to be written again.
    pub(super) rewrite: bool,
    /// All rows are to be written again, and these are not to be there unless they follow from the state.
    pub(super) strays: Option<Delete>,
    /// What is written once is to be written again, because the idempotency key is not there.
    pub(super) key_is_lost: bool,
}
