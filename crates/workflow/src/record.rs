//! What stores keep of a workflow: guarded changes, rows of sorted sets, and states as bytes.

pub mod change;
pub(crate) mod codec;
pub(crate) mod due;
pub(crate) mod format;
pub(crate) mod lease;
pub(crate) mod note;
pub mod rows;
pub(crate) mod small;
pub(crate) mod terms;
