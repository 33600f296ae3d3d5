//! What the desks of all partitions share: the ready jobs, those who watch, and the time of the next timer.

pub(crate) mod watchers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

use self::watchers::Watchers;
use super::queues::Queues;
use super::sweep::gone::Gone;
use super::trouble::Troubles;
use crate::state::RetentionDefaults;
use crate::time::Timestamp;

/// No timer is known.
const NEVER: u64 = u64::MAX;

/// What the desks of all partitions share.
#[derive(Debug)]
pub(crate) struct Context {
    /// How long ended workflows are kept, unless they say so themselves.
    pub(crate) retention: RetentionDefaults,
    pub(crate) queues: Queues,
    pub(super) gone: Gone,
    pub(crate) troubles: Troubles,
    pub(super) watchers: Arc<Watchers>,
    /// The earliest known timer that no sweep has handled, in microseconds.
    expected: AtomicU64,
    /// Notified when that time has become earlier.
    sooner: Notify,
}

impl Context {
    pub(super) fn new(retention: RetentionDefaults) -> Self {
        Self {
            retention,
            queues: Queues::default(),
            gone: Gone::default(),
            troubles: Troubles::default(),
            watchers: Arc::default(),
            expected: AtomicU64::new(NEVER),
            sooner: Notify::new(),
        }
    }

    /// Notes the time at which a workflow is due.
    pub(crate) fn expect_by(&self, moment: Timestamp) {
        if moment.micros() < self.expected.fetch_min(moment.micros(), Relaxed) {
            self.sooner.notify_one();
        }
    }

    /// Forgets the times noted so far: a sweep reads them again.
    pub(super) fn expect_nothing(&self) {
        self.expected.store(NEVER, Relaxed);
    }

    /// The earliest time noted.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let micros = self.expected.load(Relaxed);
        (micros != NEVER).then_some(Timestamp::from_micros(micros))
    }

    /// Returns when [`Context::next_due`] has become earlier.
    pub(super) async fn sooner(&self) {
        self.sooner.notified().await;
    }
}
