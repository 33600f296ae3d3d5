//! TODO: say what these modules are for.

pub(crate) mod request;
pub(crate) mod window;
