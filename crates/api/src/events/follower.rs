//! Follows changes of the workflows that have readers, once for all readers of a workflow.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_workflow::{Engine, EngineError, Status, WatchGuard, WorkflowId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::feeds::{COALESCE_TIME, FeedVersion, WorkflowFeed};
use super::pacer::Pace;
use crate::http::request::ServerHooks;

/// Feeds of the workflows that have readers.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    each: Mutex<HashMap<WorkflowId, Arc<WorkflowFeed>>>,
    pace: Arc<Pace>,
}

impl Feeds {
    pub(super) fn each(&self) -> MutexGuard<'_, HashMap<WorkflowId, Arc<WorkflowFeed>>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a workflow until the receiver is dropped. The store is polled for changes by other
    /// servers at `poll_interval`. `None` if no other server can change it.
    pub(crate) fn follow(
        self: &Arc<Self>,
        engine: &Engine,
        id: WorkflowId,
        look: Option<Duration>,
        host: &ServerHooks,
    ) -> (Arc<WorkflowFeed>, watch::Receiver<FeedVersion>) {
        let mut each = self.each();
        if let Some(view) = each.get(&id) {
            return (Arc::clone(view), view.known());
        }
        let view = Arc::new(WorkflowFeed::new(Arc::clone(&self.pace)));
        let known = view.known();
        each.insert(id, Arc::clone(&view));
        let watching = engine.watch(id);
        let follower = Follower {
            views: Arc::clone(self),
            view: Arc::clone(&view),
            engine: engine.clone(),
            id,
            look,
        };
        let drain = host.drain.clone();
        host.tasks
            .spawn(async move { drain.run_until_cancelled(follower.run(watching)).await });
        (view, known)
    }
}

/// Follows the changes of one workflow for all of its readers.
struct Follower {
    views: Arc<Feeds>,
    view: Arc<WorkflowFeed>,
    engine: Engine,
    id: WorkflowId,
    look: Option<Duration>,
}

impl Follower {
    async fn run(self, mut watching: WatchGuard) {
        // Time at which readers are notified of a change. More changes are likely to follow at
        // once.
        let mut due: Option<Instant> = None;
        loop {
            let company = async {
                match self.look {
                    Some(look) => sleep(look).await,
                    None => pending().await,
                }
            };
            let gathered = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            let news = tokio::select! {
                notice = watching.next() => self.view.note(known(notice.version, notice.status)),
                () = company => self.look().await,
                () = gathered => {
                    due = self.view.busy();
                    if due.is_none() {
                        self.view.tell();
                    }
                    false
                }
                () = self.view.closed() => {
                    if self.is_done() {
                        return;
                    }
                    false
                }
            };
            if news && due.is_none() {
                due = Some(Instant::now() + COALESCE_TIME);
            }
        }
    }

    /// Reads the version from the store. Returns whether it is new.
    async fn look(&self) -> bool {
        match self.engine.glance(self.id).await {
            Ok(meta) => self.view.note(known(meta.version, Some(meta.status))),
            Err(EngineError::NoWorkflow { .. }) => self.view.note(FeedVersion::Removed),
            // The next poll may succeed.
            Err(_) => false,
        }
    }

    /// Removes the feed, unless a reader has come in the meantime. Returns whether it was removed.
    fn is_done(&self) -> bool {
        let mut each = self.views.each();
        let done = !self.view.has_readers();
        if done {
            each.remove(&self.id);
        }
        done
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // This runs when the server drains, or a thread has ended. A later reader gets another
        // follower.
        let mut each = self.views.each();
        if each
            .get(&self.id)
            .is_some_and(|view| Arc::ptr_eq(view, &self.view))
        {
            each.remove(&self.id);
        }
    }
}

fn known(version: u64, status: Option<Status>) -> FeedVersion {
    status.map_or(FeedVersion::Removed, |status| FeedVersion::Version {
        version,
        over: status.is_over(),
    })
}
