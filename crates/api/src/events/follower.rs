//! Learns of changes of the workflows that somebody follows, once for all of their readers.

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

/// The workflows that somebody follows.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    each: Mutex<HashMap<WorkflowId, Arc<WorkflowFeed>>>,
    pace: Arc<Pace>,
}

impl Feeds {
    pub(super) fn each(&self) -> MutexGuard<'_, HashMap<WorkflowId, Arc<WorkflowFeed>>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a workflow until the receiver is dropped. Changes of other servers are asked for every `look`; none: there are no others.
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

/// Learns what a workflow has become, for all who read it.
struct Follower {
    views: Arc<Feeds>,
    view: Arc<WorkflowFeed>,
    engine: Engine,
    id: WorkflowId,
    look: Option<Duration>,
}

impl Follower {
    async fn run(self, mut watching: WatchGuard) {
        // When readers are told what has happened. More is likely to follow at once.
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

    /// Asks the store. Whether there is news.
    async fn look(&self) -> bool {
        match self.engine.glance(self.id).await {
            Ok(meta) => self.view.note(known(meta.version, Some(meta.status))),
            Err(EngineError::NoWorkflow { .. }) => self.view.note(FeedVersion::Removed),
            // The next look may find more.
            Err(_) => false,
        }
    }

    /// Ends, unless somebody has come in the meantime.
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
        // When the server drains, or a thread has ended: who comes now gets another follower.
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
