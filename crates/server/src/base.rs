//! The wall clock, files, texts and the version: used by every layer, and importing none.

pub(crate) mod clock;
pub(crate) mod file;
pub(crate) mod log_throttle;
pub(crate) mod sync;
pub(crate) mod text;
pub(crate) mod version;
