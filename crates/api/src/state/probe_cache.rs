//! Result of the latest probe of the store, which all requests share.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

#[cfg(test)]
use utoipa::ToSchema;

use crate::http::lock;

/// Shortest time between two probes of the store, whatever the number of requests.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Result of the latest probe of the store.
#[derive(Debug, Default)]
pub(crate) struct ProbeCache {
    started_at: Mutex<Option<Instant>>,
    /// Whether no partition answered in time.
    pub(crate) is_silent: AtomicBool,
}

impl ProbeCache {
    /// Returns whether a probe is due, and marks it as started.
    pub(crate) fn begin_if_due(&self, now: Instant) -> bool {
        let mut started_at = lock(&self.started_at);
        let is_due = started_at.is_none_or(|at| now - at >= PROBE_INTERVAL);
        if is_due {
            *started_at = Some(now);
        }
        is_due
    }
}

/// Whether something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Works))]
pub enum Availability {
    /// All of it, as far as is known.
    #[serde(rename = "yes")]
    Up,
    /// Some of it: some partitions, or some calls.
    #[serde(rename = "partly")]
    Degraded,
    /// Nothing of it.
    #[serde(rename = "no")]
    Down,
}

impl Availability {
    pub(crate) fn from_failures(failed: usize, total: usize) -> Self {
        match failed {
            0 => Self::Up,
            some if some < total => Self::Degraded,
            _ => Self::Down,
        }
    }
}
