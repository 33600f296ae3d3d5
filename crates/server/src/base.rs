//! TODO: say what these modules are for.

pub(crate) mod clock;
pub(crate) mod file;
pub(crate) mod text;
