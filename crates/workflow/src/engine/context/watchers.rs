//! Watchers of single workflows. A change of a workflow costs nothing for the watchers of others,
//! however many there are.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::watch;

use crate::id::WorkflowId;
use crate::state::Status;

/// A new version of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionChange {
    /// New version of the workflow. 0 if it was removed.
    pub version: u64,
    /// New status of the workflow. `None` if it was removed.
    pub status: Option<Status>,
}

/// The watchers of all workflows.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// Number of watched workflows. While it is 0, a change costs one atomic load.
    number: AtomicUsize,
    each: Mutex<HashMap<WorkflowId, watch::Sender<Option<VersionChange>>>>,
}

/// A subscription to one workflow, until this is dropped.
#[derive(Debug)]
pub struct WatchGuard {
    watchers: Arc<Watchers>,
    workflow: WorkflowId,
    notices: watch::Receiver<Option<VersionChange>>,
}

impl Watchers {
    fn each(&self) -> MutexGuard<'_, HashMap<WorkflowId, watch::Sender<Option<VersionChange>>>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::engine) fn watch(self: &Arc<Self>, workflow: WorkflowId) -> WatchGuard {
        let mut each = self.each();
        let notices = each
            .entry(workflow)
            .or_insert_with(|| watch::Sender::new(None))
            .subscribe();
        self.number.store(each.len(), Relaxed);
        WatchGuard {
            watchers: Arc::clone(self),
            workflow,
            notices,
        }
    }

    /// Notifies the watchers of a workflow.
    pub(in crate::engine) fn tell(&self, workflow: WorkflowId, notice: VersionChange) {
        if self.number.load(Relaxed) > 0
            && let Some(notices) = self.each().get(&workflow)
        {
            notices.send_replace(Some(notice));
        }
    }
}

impl WatchGuard {
    /// Waits for a change since the last call, and returns the newest version. Changes by this
    /// server arrive at once, changes by other servers never.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> VersionChange {
        loop {
            if self.notices.changed().await.is_err() {
                return std::future::pending().await;
            }
            if let Some(notice) = *self.notices.borrow_and_update() {
                return notice;
            }
        }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut each = self.watchers.each();
        // The receiver of this guard still counts.
        if each
            .get(&self.workflow)
            .is_some_and(|notices| notices.receiver_count() <= 1)
        {
            each.remove(&self.workflow);
            self.watchers.number.store(each.len(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Partition;
    use crate::time::Timestamp;

    #[tokio::test]
    async fn who_watches_hears_of_one_workflow_and_is_forgotten() {
        let watchers = Arc::new(Watchers::default());
        let [one, other] =
            [1, 2].map(|number| WorkflowId::new(Timestamp::default(), Partition(0), number));
        let mut first = watchers.watch(one);
        let second = watchers.watch(one);
        let others = watchers.watch(other);
        let notice = |version| VersionChange {
            version,
            status: Some(Status::Running),
        };
        watchers.tell(other, notice(7));
        watchers.tell(one, notice(1));
        watchers.tell(one, notice(2));
        assert_eq!(first.next().await, notice(2), "the latest");
        drop(first);
        assert_eq!(watchers.each().len(), 2);
        drop((second, others));
        assert_eq!(
            (watchers.each().len(), watchers.number.load(Relaxed)),
            (0, 0)
        );
    }
}
