//! Handlers about the server itself: readiness, overview and test clock.

pub(crate) mod overview;
pub(crate) mod readiness;
mod server_state;
pub(crate) mod test_clock;
