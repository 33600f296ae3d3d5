//! Snapshots and updates that the readers of one workflow share.

pub(crate) mod follower;
pub(crate) mod frames;
pub(crate) mod pacer;
pub(crate) mod snapshot;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_workflow::{Engine, EngineError, WorkflowId};
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

use self::frames::Frames;
use self::pacer::SendPacer;
use self::snapshot::{FeedSnapshot, ReaderState};

use crate::http::lock;

/// Changes within this time are sent as one update: people see no more than four updates a second.
pub(crate) const COALESCE_TIME: Duration = Duration::from_millis(250);
/// After an update, readers pause this number of times as long as its reading and writing took. A
/// large workflow keeps a processor busy for a while.
const IDLE_FACTOR: u32 = 9;
/// Longest pause that [`IDLE_FACTOR`] leads to.
const MAX_IDLE: Duration = Duration::from_secs(5);
/// Number of reader positions for which the update to the latest version is cached.
const MAX_CACHED_UPDATES: usize = 8;

/// State that a reader has before it gets an update.
#[derive(Debug)]
pub(crate) enum ReaderPosition {
    /// The reader is new and needs the workflow only.
    LatestOnly,
    /// The reader has missed changes and needs all jobs.
    FromStart,
    After(Arc<ReaderState>),
}

impl ReaderPosition {
    fn key(&self) -> (bool, Option<u64>) {
        match self {
            Self::LatestOnly => (false, None),
            Self::FromStart => (true, None),
            Self::After(state) => (true, Some(state.version)),
        }
    }
}

/// Update for all readers with one position, and their state after it.
#[derive(Debug, Clone)]
pub(crate) struct FeedUpdate {
    pub(crate) state: Arc<ReaderState>,
    pub(crate) frames: Arc<Frames>,
}

/// Known version of a workflow that has readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FeedVersion {
    /// The workflow has at least this version.
    Version {
        version: u64,
        /// Whether the workflow has ended.
        has_ended: bool,
    },
    Removed,
}

/// State that all readers of one workflow share. Each version is read once, each update is written
/// once, and one task polls the store, whatever the number of readers.
#[derive(Debug)]
pub(crate) struct WorkflowFeed {
    cache: Mutex<VersionCache>,
    round: Mutex<DeliveryRound>,
    pacer: Arc<SendPacer>,
    versions: watch::Sender<FeedVersion>,
    /// Known version, published no more often than readers are notified.
    coalesced_versions: watch::Sender<FeedVersion>,
}

/// Reads and writes that an update has caused. Until they end, no further update is published: then
/// all readers are at the same version and share one text.
#[derive(Debug)]
struct DeliveryRound {
    /// Number of readers that read now, or wait for one that does.
    active_reads: usize,
    /// Time until which the pacer and the pause keep the readers busy.
    busy_until: Instant,
}

/// Counts one reader as reading, until it is dropped.
struct ReadGuard<'a>(&'a WorkflowFeed);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.lock_round().active_reads -= 1;
    }
}

/// Snapshot of one version and the updates made of it. For a large workflow they are dropped as
/// soon as the waiting readers have them.
#[derive(Debug, Default)]
struct VersionCache {
    version: u64,
    snapshot: Arc<OnceCell<Arc<FeedSnapshot>>>,
    updates: HashMap<(bool, Option<u64>), Arc<OnceCell<FeedUpdate>>>,
}

impl WorkflowFeed {
    pub(crate) fn new(pacer: Arc<SendPacer>) -> Self {
        let channel = || {
            watch::Sender::new(FeedVersion::Version {
                version: 0,
                has_ended: false,
            })
        };
        let round = Mutex::new(DeliveryRound {
            active_reads: 0,
            busy_until: Instant::now(),
        });
        Self {
            cache: Mutex::default(),
            round,
            pacer,
            versions: channel(),
            coalesced_versions: channel(),
        }
    }

    fn lock_round(&self) -> MutexGuard<'_, DeliveryRound> {
        lock(&self.round)
    }

    /// Returns the time from which a reader may get a text of this number of bytes.
    pub(crate) fn reserve_send(&self, bytes: usize) -> Instant {
        let send_at = self.pacer.reserve(bytes, Instant::now());
        self.busy_until(send_at);
        send_at
    }

    fn busy_until(&self, time: Instant) {
        let mut round = self.lock_round();
        round.busy_until = round.busy_until.max(time);
    }

    fn begin_read(&self) -> ReadGuard<'_> {
        self.lock_round().active_reads += 1;
        ReadGuard(self)
    }

    /// Returns the time from which readers may be notified again. `None` if that is now.
    pub(crate) fn next_delivery(&self) -> Option<Instant> {
        let now = Instant::now();
        let round = self.lock_round();
        if round.active_reads > 0 {
            Some(now + COALESCE_TIME)
        } else {
            Some(round.busy_until).filter(|until| *until > now)
        }
    }

    fn lock_cache(&self) -> MutexGuard<'_, VersionCache> {
        lock(&self.cache)
    }

    /// Subscribes to each change of the known version.
    pub(crate) fn subscribe(&self) -> watch::Receiver<FeedVersion> {
        self.versions.subscribe()
    }

    /// Whether the workflow has a reader.
    pub(crate) fn has_readers(&self) -> bool {
        self.versions.receiver_count() + self.coalesced_versions.receiver_count() > 0
    }

    /// Subscribes to the known version, coalesced for readers.
    pub(crate) fn subscribe_coalesced(&self) -> watch::Receiver<FeedVersion> {
        self.coalesced_versions.subscribe()
    }

    /// Returns the update to this version of the workflow, or to a later one.
    pub(crate) async fn update(
        &self,
        engine: &Engine,
        id: WorkflowId,
        version: u64,
        since: &ReaderPosition,
    ) -> Result<FeedUpdate, EngineError> {
        let cells = self.cells(version, since);
        let _guard = self.begin_read();
        let write = || async {
            let started_at = Instant::now();
            let current = cells
                .snapshot
                .get_or_try_init(|| FeedSnapshot::read(engine, id))
                .await?;
            let update = write_update(engine, Arc::clone(current), since).await;
            let ended_at = Instant::now();
            self.busy_until(ended_at + MAX_IDLE.min((ended_at - started_at) * IDLE_FACTOR));
            Ok::<_, EngineError>(update)
        };
        cells.update.get_or_try_init(write).await.cloned()
    }

    fn cells(&self, version: u64, since: &ReaderPosition) -> SharedCells<'_> {
        let mut latest = self.lock_cache();
        if latest.version < version {
            *latest = VersionCache {
                version,
                ..VersionCache::default()
            };
        }
        // Slow readers are at many different versions.
        if latest.updates.len() >= MAX_CACHED_UPDATES {
            latest.updates.clear();
        }
        let update = Arc::clone(latest.updates.entry(since.key()).or_default());
        SharedCells {
            feed: self,
            snapshot: Arc::clone(&latest.snapshot),
            update,
        }
    }

    /// Records a version that was learned. Returns whether it is new.
    pub(crate) fn record(&self, version: FeedVersion) -> bool {
        self.versions.send_if_modified(|latest| {
            let is_new = version > *latest;
            if is_new {
                *latest = version;
            }
            is_new
        })
    }

    /// Publishes the known version to the readers.
    pub(crate) fn publish(&self) {
        let latest = *self.versions.borrow();
        self.coalesced_versions.send_replace(latest);
    }

    /// Returns when the workflow seems to have no reader any more.
    pub(crate) async fn closed(&self) {
        self.versions.closed().await;
        self.coalesced_versions.closed().await;
    }
}

/// Cells that one reader shares with others while it reads and writes.
struct SharedCells<'a> {
    feed: &'a WorkflowFeed,
    snapshot: Arc<OnceCell<Arc<FeedSnapshot>>>,
    update: Arc<OnceCell<FeedUpdate>>,
}

impl Drop for SharedCells<'_> {
    fn drop(&mut self) {
        // This also runs if the reader has gone before it had them. Readers that come later read a
        // large workflow again.
        if self
            .snapshot
            .get()
            .is_some_and(|cached| cached.snapshot.is_large())
        {
            let mut latest = self.feed.lock_cache();
            if Arc::ptr_eq(&latest.snapshot, &self.snapshot) {
                latest.snapshot = Arc::default();
            }
            latest
                .updates
                .retain(|_, other| !Arc::ptr_eq(other, &self.update));
        }
    }
}

async fn write_update(
    engine: &Engine,
    current: Arc<FeedSnapshot>,
    since: &ReaderPosition,
) -> FeedUpdate {
    let state = Arc::clone(&current.state);
    let large = current.snapshot.is_large();
    let previous = match since {
        ReaderPosition::LatestOnly => Some(Arc::clone(&state)),
        ReaderPosition::FromStart => None,
        ReaderPosition::After(state) => Some(Arc::clone(state)),
    };
    let write = move || {
        Frames::changes(
            previous
                .as_ref()
                .map_or(&[], |previous| &previous.job_states),
            &current,
        )
    };
    FeedUpdate {
        state,
        frames: if large {
            engine.run_blocking(write).await
        } else {
            write()
        },
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use tidegate_workflow::{
        Action, Definition, EngineOptions, Graph, JobDefinition, NewWorkflow, SimulatedStore,
        StartMode, Store, Timestamp,
    };
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::state::feeds::follower::Feeds;
    use crate::state::server_hooks::ServerHooks;

    fn host() -> ServerHooks {
        ServerHooks::for_test(Timestamp::default())
    }

    async fn workflow(engine: &Engine) -> WorkflowId {
        workflow_of(engine, vec![JobDefinition::new("a", "a")]).await
    }

    async fn workflow_of(engine: &Engine, jobs: Vec<JobDefinition>) -> WorkflowId {
        let graph = Graph::build(Definition {
            name: "w".to_owned(),
            jobs,
            ..Definition::default()
        })
        .unwrap();
        let new = NewWorkflow {
            graph,
            start: StartMode::Now,
            created_at: None,
        };
        engine
            .create(vec![new], Timestamp::from_micros(1))
            .await
            .remove(0)
            .unwrap()
            .workflow
    }

    /// A thousand readers of one idle workflow asked Redis four thousand times a second.
    #[tokio::test]
    async fn a_thousand_readers_of_a_workflow_ask_the_store_as_one_does() {
        const POLL_INTERVAL: Duration = Duration::from_millis(50);
        let store = SimulatedStore::new(1);
        let engine = Engine::start(Store::Simulated(store.clone()), EngineOptions::default())
            .await
            .unwrap();
        let id = workflow(&engine).await;
        let views = Arc::new(Feeds::default());
        let host = host();
        let readers: Vec<_> = (0..1_000)
            .map(|_| views.follow(&engine, id, Some(POLL_INTERVAL), &host))
            .collect();
        let before = store.calls();
        let began = Instant::now();
        while store.calls() < before + 3 {
            sleep(POLL_INTERVAL).await;
        }
        let store_reads = store.calls() - before;
        let polls = began.elapsed().as_millis() / POLL_INTERVAL.as_millis();
        assert!(u128::from(store_reads) <= polls, "{store_reads} times");
        drop(readers);
    }

    #[tokio::test]
    async fn readers_of_one_workflow_share_what_is_read_and_one_follows_it() {
        let store = Store::Simulated(SimulatedStore::new(1));
        let engine = Engine::start(store, EngineOptions::default())
            .await
            .unwrap();
        let id = workflow(&engine).await;
        let views = Arc::new(Feeds::default());
        let host = host();
        let follow = || views.follow(&engine, id, None, &host);
        let (one, mut known) = follow();
        let (other, others) = follow();
        assert_eq!(host.tasks.len(), 1);
        let version = engine.workflow_meta(id).await.unwrap().version;
        let news = async |view: &WorkflowFeed, version| {
            view.update(&engine, id, version, &ReaderPosition::LatestOnly)
                .await
                .unwrap()
        };
        let first = news(&one, version).await;
        let same = |other: &FeedUpdate| {
            Arc::ptr_eq(&first.state, &other.state) && Arc::ptr_eq(&first.frames, &other.frames)
        };
        assert!(same(&news(&other, version).await));
        assert!(!same(&news(&other, version + 1).await), "it is read again");
        engine
            .act(id, Action::Cancel, Timestamp::from_micros(2))
            .await
            .unwrap();
        let ended = |known: &FeedVersion| matches!(known, FeedVersion::Version { has_ended: true, version: found } if *found > version);
        known.wait_for(ended).await.unwrap();
        drop((known, others));
        host.tasks.close();
        host.tasks.wait().await;
        assert!(views.lock().is_empty(), "nobody follows it");
        assert_ne!(Arc::as_ptr(&follow().0), Arc::as_ptr(&one));
    }

    /// A thousand readers got each change at once, four times a second: other requests waited for
    /// all of them.
    #[tokio::test(start_paused = true)]
    async fn readers_are_notified_again_when_all_have_been_served() {
        let engine = Engine::start(
            Store::Simulated(SimulatedStore::new(1)),
            EngineOptions::default(),
        )
        .await
        .unwrap();
        let id = workflow(&engine).await;
        let views = Arc::new(Feeds::default());
        let host = host();
        let (view, _known) = views.follow(&engine, id, None, &host);
        let mut versions = view.subscribe_coalesced();
        let mut after = async |action| {
            let began = Instant::now();
            engine
                .act(id, action, Timestamp::from_micros(2))
                .await
                .unwrap();
            versions.changed().await.unwrap();
            began.elapsed()
        };
        let at_once = COALESCE_TIME..COALESCE_TIME + Duration::from_millis(20);
        assert!(at_once.contains(&after(Action::Pause).await));
        let last = (0..1_000).map(|_| view.reserve_send(100)).max().unwrap();
        let wait = last - Instant::now();
        assert!(wait > COALESCE_TIME && after(Action::Resume).await >= wait);
        assert!(at_once.contains(&after(Action::Pause).await));
        // One of the readers reads, or waits for one that does.
        let reading = view.begin_read();
        let mut waits = Box::pin(after(Action::Resume));
        assert!(timeout(20 * COALESCE_TIME, waits.as_mut()).await.is_err());
        drop(reading);
        assert!(timeout(2 * COALESCE_TIME, waits).await.is_ok());
    }

    /// For each of 256 readers of a workflow of 131,072 jobs, all of its jobs were written, and all
    /// texts were kept as long as one of the readers read.
    #[tokio::test]
    async fn updates_of_a_large_workflow_are_written_once_and_not_kept() {
        let store = SimulatedStore::new(1);
        let engine = Engine::start(Store::Simulated(store.clone()), EngineOptions::default())
            .await
            .unwrap();
        let jobs = (0..2_000)
            .map(|at| JobDefinition::new(format!("{at:0100}"), "a"))
            .collect();
        let id = workflow_of(&engine, jobs).await;
        let views = Arc::new(Feeds::default());
        let host = host();
        let (view, _known) = views.follow(&engine, id, None, &host);
        let version = engine.workflow_meta(id).await.unwrap().version;
        let before = store.calls();
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..256 {
            let engine = engine.clone();
            let view = Arc::clone(&view);
            readers.spawn(async move {
                view.update(&engine, id, version, &ReaderPosition::FromStart)
                    .await
                    .unwrap()
            });
        }
        let news = readers.join_all().await;
        assert_eq!(store.calls() - before, 2, "its size and all of it, once");
        assert!(
            news.iter()
                .all(|other| Arc::ptr_eq(&other.frames, &news[0].frames))
        );
        // A reader that leaves while others read leaves nothing behind.
        let mut leaves = Box::pin(view.update(&engine, id, version, &ReaderPosition::LatestOnly));
        let read = poll_fn(|context| {
            let ready = leaves.as_mut().poll(context).is_ready();
            if ready || view.lock_cache().snapshot.get().is_some() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        read.await;
        drop(leaves);
        let all_read = async {
            (
                engine.show(id).await.unwrap(),
                engine.show(id).await.unwrap(),
            )
        };
        assert!(
            timeout(Duration::from_secs(20), all_read).await.is_ok(),
            "there is room for two"
        );
    }
}
