//! The wall clock. It is read here and nowhere else, and passed on as an argument.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_ratelimit::Timestamp;

/// The time now. A clock that is set before 1970 gives the epoch.
pub(crate) fn now() -> Timestamp {
    Timestamp(micros())
}

/// The time now, for workflows.
pub(crate) fn moment() -> tidegate_workflow::Timestamp {
    tidegate_workflow::Timestamp::from_micros(micros())
}

#[expect(clippy::disallowed_methods, reason = "the server is where clocks are read")]
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
