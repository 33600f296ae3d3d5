//! TODO: say what these modules are for.

pub(crate) mod overview;
pub(crate) mod readiness;
pub(crate) mod test_clock;
