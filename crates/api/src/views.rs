//! Parts of answers that several nouns have in common.

pub(crate) mod error_summary;
pub(crate) mod fair_lock;
pub(crate) mod incomplete;
pub(crate) mod job;
pub(crate) mod why;
pub(crate) mod workflow;
pub(crate) mod workflow_limits;
