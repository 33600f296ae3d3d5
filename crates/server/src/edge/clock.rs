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
    shifted(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The time itself.
#[cfg(not(debug_assertions))]
fn shifted(micros: u64) -> u64 {
    micros
}

#[cfg(debug_assertions)]
pub(crate) use debug::shift;
#[cfg(debug_assertions)]
use debug::shifted;

/// A clock that is wrong, for tests of servers whose clocks differ. Release builds contain nothing of this.
#[cfg(debug_assertions)]
mod debug {
    use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

    static SHIFT: AtomicI64 = AtomicI64::new(0);

    /// From now on, the clock is wrong by so many seconds.
    pub(crate) fn shift(seconds: i64) {
        SHIFT.store(seconds.saturating_mul(1_000_000), Relaxed);
    }

    pub(super) fn shifted(micros: u64) -> u64 {
        micros.saturating_add_signed(SHIFT.load(Relaxed))
    }
}
