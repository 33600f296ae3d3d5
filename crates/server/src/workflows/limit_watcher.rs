//! Detector of changed limits, after which jobs that wait under a limit may be tried again.

use std::sync::Arc;

use tidegate_ratelimit::{Configuration, Limiter, Overrides};

/// Configuration and overrides at one time.
struct ActiveLimits {
    configuration: Option<Arc<Configuration>>,
    overrides: Arc<Overrides>,
}

impl ActiveLimits {
    fn of(limiter: &Limiter) -> Self {
        Self {
            configuration: limiter.configuration(),
            overrides: limiter.overrides(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        let same = match (&self.configuration, &other.configuration) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        let none = self.overrides.is_empty() && other.overrides.is_empty();
        same && (none || Arc::ptr_eq(&self.overrides, &other.overrides))
    }
}

/// Returns a function that reports whether the limits have changed since its last call. It only
/// compares pointers.
pub(super) fn changes(limiter: Limiter) -> impl FnMut() -> bool {
    let mut known = ActiveLimits::of(&limiter);
    move || {
        let now = ActiveLimits::of(&limiter);
        let changed = !now.is(&known);
        known = now;
        changed
    }
}
