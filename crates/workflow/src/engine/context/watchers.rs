//! Watchers of single workflows. A change of a workflow costs nothing for the watchers of others,
//! however many there are.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::watch;

use crate::model::{Status, WorkflowId};

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
    workflow_count: AtomicUsize,
    by_workflow: Mutex<HashMap<WorkflowId, watch::Sender<Option<VersionChange>>>>,
}

/// A subscription to one workflow, until this is dropped.
#[derive(Debug)]
pub struct WatchGuard {
    watchers: Arc<Watchers>,
    workflow: WorkflowId,
    receiver: watch::Receiver<Option<VersionChange>>,
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkflowId, watch::Sender<Option<VersionChange>>>> {
        self.by_workflow
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::engine) fn watch(self: &Arc<Self>, workflow: WorkflowId) -> WatchGuard {
        let mut by_workflow = self.lock();
        let receiver = by_workflow
            .entry(workflow)
            .or_insert_with(|| watch::Sender::new(None))
            .subscribe();
        self.workflow_count.store(by_workflow.len(), Relaxed);
        WatchGuard {
            watchers: Arc::clone(self),
            workflow,
            receiver,
        }
    }

    /// Notifies the watchers of a workflow.
    pub(crate) fn notify(&self, workflow: WorkflowId, change: VersionChange) {
        if self.workflow_count.load(Relaxed) > 0
            && let Some(sender) = self.lock().get(&workflow)
        {
            sender.send_replace(Some(change));
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
            if self.receiver.changed().await.is_err() {
                return std::future::pending().await;
            }
            if let Some(change) = *self.receiver.borrow_and_update() {
                return change;
            }
        }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut by_workflow = self.watchers.lock();
        // The receiver of this guard still counts.
        if by_workflow
            .get(&self.workflow)
            .is_some_and(|receiver| receiver.receiver_count() <= 1)
        {
            by_workflow.remove(&self.workflow);
            self.watchers
                .workflow_count
                .store(by_workflow.len(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Partition, Timestamp};

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
        watchers.notify(other, notice(7));
        watchers.notify(one, notice(1));
        watchers.notify(one, notice(2));
        assert_eq!(first.next().await, notice(2), "the latest");
        drop(first);
        assert_eq!(watchers.lock().len(), 2);
        drop((second, others));
        assert_eq!(
            (watchers.lock().len(), watchers.workflow_count.load(Relaxed)),
            (0, 0)
        );
    }
}
