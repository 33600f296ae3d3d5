//! Handlers about the server itself: readiness, overview and test clock.

pub(crate) mod overview;
pub(crate) mod readiness;
pub(crate) mod test_clock;
