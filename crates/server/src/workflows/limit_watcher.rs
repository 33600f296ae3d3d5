//! Notices when there are other limits: jobs that wait under any of them may then be tried again.

use std::sync::Arc;

use tidegate_ratelimit::{Configuration, Limiter, Overrides};

/// The limits that hold at some moment.
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

/// Says whether a limiter has other limits than when it was last asked. Nothing is read for that.
pub(super) fn changes(limiter: Limiter) -> impl FnMut() -> bool {
    let mut known = ActiveLimits::of(&limiter);
    move || {
        let now = ActiveLimits::of(&limiter);
        let changed = !now.is(&known);
        known = now;
        changed
    }
}
