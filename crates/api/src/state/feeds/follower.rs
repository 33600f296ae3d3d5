//! Follows changes of the workflows that have readers, once for all readers of a workflow.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_workflow::{Engine, EngineError, Status, WatchGuard, WorkflowId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::http::lock;
use crate::state::feeds::pacer::SendPacer;
use crate::state::feeds::{COALESCE_TIME, FeedVersion, WorkflowFeed};
use crate::state::server_hooks::ServerHooks;

/// Feeds of the workflows that have readers.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    by_workflow: Mutex<HashMap<WorkflowId, Arc<WorkflowFeed>>>,
    pacer: Arc<SendPacer>,
}

impl Feeds {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<WorkflowId, Arc<WorkflowFeed>>> {
        lock(&self.by_workflow)
    }

    /// Follows a workflow until the receiver is dropped. The store is polled for changes by other
    /// servers at `poll_interval`. `None` if no other server can change it.
    pub(crate) fn follow(
        self: &Arc<Self>,
        engine: &Engine,
        id: WorkflowId,
        poll_interval: Option<Duration>,
        host: &ServerHooks,
    ) -> (Arc<WorkflowFeed>, watch::Receiver<FeedVersion>) {
        let mut feeds = self.lock();
        if let Some(feed) = feeds.get(&id) {
            return (Arc::clone(feed), feed.subscribe());
        }
        let feed = Arc::new(WorkflowFeed::new(Arc::clone(&self.pacer)));
        let versions = feed.subscribe();
        feeds.insert(id, Arc::clone(&feed));
        let changes = engine.watch(id);
        let follower = Follower {
            feeds: Arc::clone(self),
            feed: Arc::clone(&feed),
            engine: engine.clone(),
            id,
            poll_interval,
        };
        let drain = host.drain.clone();
        host.tasks
            .spawn(async move { drain.run_until_cancelled(follower.run(changes)).await });
        (feed, versions)
    }
}

/// Follows the changes of one workflow for all of its readers.
struct Follower {
    feeds: Arc<Feeds>,
    feed: Arc<WorkflowFeed>,
    engine: Engine,
    id: WorkflowId,
    poll_interval: Option<Duration>,
}

impl Follower {
    async fn run(self, mut changes: WatchGuard) {
        // Time at which readers are notified of a change. More changes are likely to follow at
        // once.
        let mut due: Option<Instant> = None;
        loop {
            let company = async {
                match self.poll_interval {
                    Some(poll_interval) => sleep(poll_interval).await,
                    None => pending().await,
                }
            };
            let gathered = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            let is_new = tokio::select! {
                notice = changes.next() => self.feed.record(feed_version(notice.version, notice.status)),
                () = company => self.poll().await,
                () = gathered => {
                    due = self.feed.next_delivery();
                    if due.is_none() {
                        self.feed.publish();
                    }
                    false
                }
                () = self.feed.closed() => {
                    if self.remove_if_unread() {
                        return;
                    }
                    false
                }
            };
            if is_new && due.is_none() {
                due = Some(Instant::now() + COALESCE_TIME);
            }
        }
    }

    /// Reads the version from the store. Returns whether it is new.
    async fn poll(&self) -> bool {
        match self.engine.workflow_meta(self.id).await {
            Ok(meta) => self
                .feed
                .record(feed_version(meta.version, Some(meta.status))),
            Err(EngineError::NoWorkflow { .. }) => self.feed.record(FeedVersion::Removed),
            // The next poll may succeed.
            Err(_) => false,
        }
    }

    /// Removes the feed, unless a reader has come in the meantime. Returns whether it was removed.
    fn remove_if_unread(&self) -> bool {
        let mut feeds = self.feeds.lock();
        let has_no_readers = !self.feed.has_readers();
        if has_no_readers {
            feeds.remove(&self.id);
        }
        has_no_readers
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // This runs when the server drains, or a thread has ended. A later reader gets another
        // follower.
        let mut feeds = self.feeds.lock();
        if feeds
            .get(&self.id)
            .is_some_and(|feed| Arc::ptr_eq(feed, &self.feed))
        {
            feeds.remove(&self.id);
        }
    }
}

fn feed_version(version: u64, status: Option<Status>) -> FeedVersion {
    status.map_or(FeedVersion::Removed, |status| FeedVersion::Version {
        version,
        has_ended: status.is_over(),
    })
}
