//! The wall clock. It is read only here, and passed on as an argument. Only a server for tests
//! moves it ahead.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_ratelimit::Timestamp;

/// Maximum of microseconds that the clock can be moved ahead in all: a thousand years, which the
/// time format of the store can hold.
const MAX_ADVANCE_MICROS: u64 = 1_000 * 365 * 86_400 * 1_000_000;

/// Microseconds that the clock was moved ahead.
static ADVANCE_MICROS: AtomicU64 = AtomicU64::new(0);

/// Moves the clock of this process ahead for good. Returns false if that would exceed the maximum.
pub(crate) fn advance(by: Duration) -> bool {
    let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
    let moved = |advance: u64| {
        Some(advance.saturating_add(by)).filter(|&advance| advance <= MAX_ADVANCE_MICROS)
    };
    ADVANCE_MICROS.fetch_update(Relaxed, Relaxed, moved).is_ok()
}

/// The current time. A clock before 1970 gives the epoch.
pub(crate) fn now() -> Timestamp {
    Timestamp(micros())
}

/// The current time as a timestamp of workflows.
pub(crate) fn workflow_now() -> tidegate_workflow::Timestamp {
    tidegate_workflow::Timestamp::from_micros(micros())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server is where clocks are read"
)]
fn micros() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    shifted(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
        .saturating_add(ADVANCE_MICROS.load(Relaxed))
}

/// The time without a shift, in release builds.
#[cfg(not(debug_assertions))]
fn shifted(micros: u64) -> u64 {
    micros
}

#[cfg(debug_assertions)]
pub(crate) use debug::shift;
#[cfg(debug_assertions)]
use debug::shifted;

/// A wrong clock, for tests of servers whose clocks differ. Release builds do not contain it.
#[cfg(debug_assertions)]
mod debug {
    use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

    static SHIFT: AtomicI64 = AtomicI64::new(0);

    /// Makes the clock wrong by `seconds` from now on.
    pub(crate) fn shift(seconds: i64) {
        SHIFT.store(seconds.saturating_mul(1_000_000), Relaxed);
    }

    pub(super) fn shifted(micros: u64) -> u64 {
        micros.saturating_add_signed(SHIFT.load(Relaxed))
    }
}
