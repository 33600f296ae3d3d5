//! What the desks of all partitions share: the ready jobs, the subscribers, and the time of the next timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::{Notify, broadcast};

use super::queues::Queues;
use super::sweep::gone::Gone;
use super::trouble::Troubles;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{JobState, RetentionDefaults, Status};
use crate::time::Timestamp;

/// How many notices a slow subscriber may be behind.
const NOTICES: usize = 1_024;

/// No timer is known.
const NEVER: u64 = u64::MAX;

/// What changed in a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Its status now. None: it was removed.
    pub status: Option<Status>,
    /// The jobs that changed, by position.
    pub jobs: Vec<(JobIndex, JobState)>,
}

/// What the desks of all partitions share.
#[derive(Debug)]
pub(crate) struct Context {
    /// How long ended workflows are kept, unless they say so themselves.
    pub(crate) retention: RetentionDefaults,
    pub(crate) queues: Queues,
    pub(super) gone: Gone,
    pub(crate) troubles: Troubles,
    notices: broadcast::Sender<(WorkflowId, Arc<Notice>)>,
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
            notices: broadcast::Sender::new(NOTICES),
            expected: AtomicU64::new(NEVER),
            sooner: Notify::new(),
        }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<(WorkflowId, Arc<Notice>)> {
        self.notices.subscribe()
    }

    /// Tells subscribers about a workflow. Without subscribers the notice is not created.
    pub(crate) fn announce(&self, id: WorkflowId, notice: impl FnOnce() -> Notice) {
        if self.notices.receiver_count() > 0 {
            // The last subscriber may have left in between.
            let _none = self.notices.send((id, Arc::new(notice())));
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
