//! Lets jobs that wait under limits be tried again when there are other limits.

use std::sync::Arc;
use std::time::Duration;

use tidegate_ratelimit::{Configuration, Limiter, Overrides};
use tidegate_workflow::Engine;
use tokio::time::sleep;

/// How often it is looked whether there are others. Nothing is asked for that.
const PAUSE: Duration = Duration::from_millis(500);

/// The limits that hold at some moment.
struct InForce {
    configuration: Option<Arc<Configuration>>,
    overrides: Arc<Overrides>,
}

impl InForce {
    fn of(limiter: &Limiter) -> Self {
        Self { configuration: limiter.configuration(), overrides: limiter.overrides() }
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

/// Follows the limits of a limiter. Never returns.
pub(super) async fn run(engine: &Engine, limiter: &Limiter) {
    let mut known = InForce::of(limiter);
    loop {
        sleep(PAUSE).await;
        let now = InForce::of(limiter);
        if !now.is(&known) {
            known = now;
            engine.reconsider_limits();
        }
    }
}
