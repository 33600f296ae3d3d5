//! Snapshots and updates that the readers of one workflow share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_workflow::{Engine, EngineError, WorkflowId};
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

use super::frames::Frames;
use super::pacer::Pace;
use super::snapshot::{FeedSnapshot, ReaderState};

/// Changes within this time are sent as one update: people see no more than four updates a second.
pub(super) const COALESCE_TIME: Duration = Duration::from_millis(250);
/// After an update, readers pause this number of times as long as its reading and writing took. A
/// large workflow keeps a processor busy for a while.
const IDLE_FACTOR: u32 = 9;
/// Longest pause that [`IDLE_FACTOR`] leads to.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// Number of reader positions for which the update to the latest version is cached.
const MOST_NEWS: usize = 8;

/// State that a reader has before it gets an update.
#[derive(Debug)]
pub(super) enum ReaderPosition {
    /// The reader is new and needs the workflow only.
    Now,
    /// The reader has missed changes and needs all jobs.
    Ever,
    Told(Arc<ReaderState>),
}

impl ReaderPosition {
    fn key(&self) -> (bool, Option<u64>) {
        match self {
            Self::Now => (false, None),
            Self::Ever => (true, None),
            Self::Told(told) => (true, Some(told.version)),
        }
    }
}

/// Update for all readers with one position, and their state after it.
#[derive(Debug, Clone)]
pub(super) struct FeedUpdate {
    pub(super) told: Arc<ReaderState>,
    pub(super) frames: Arc<Frames>,
}

/// Known version of a workflow that has readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FeedVersion {
    /// The workflow has at least this version.
    Version {
        version: u64,
        /// Whether the workflow has ended.
        over: bool,
    },
    Removed,
}

/// State that all readers of one workflow share. Each version is read once, each update is written
/// once, and one task polls the store, whatever the number of readers.
#[derive(Debug)]
pub(crate) struct WorkflowFeed {
    latest: Mutex<Latest>,
    round: Mutex<DeliveryRound>,
    pace: Arc<Pace>,
    known: watch::Sender<FeedVersion>,
    /// Known version, published no more often than readers are notified.
    gathered: watch::Sender<FeedVersion>,
}

/// Reads and writes that an update has caused. Until they end, no further update is published: then
/// all readers are at the same version and share one text.
#[derive(Debug)]
struct DeliveryRound {
    /// Number of readers that read now, or wait for one that does.
    reading: usize,
    /// Time until which the pacer and the pause keep the readers busy.
    until: Instant,
}

/// Counts one reader as reading, until it is dropped.
struct ReadGuard<'a>(&'a WorkflowFeed);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.round().reading -= 1;
    }
}

/// Snapshot of one version and the updates made of it. For a large workflow they are dropped as
/// soon as the waiting readers have them.
#[derive(Debug, Default)]
struct Latest {
    version: u64,
    look: Arc<OnceCell<Arc<FeedSnapshot>>>,
    news: HashMap<(bool, Option<u64>), Arc<OnceCell<FeedUpdate>>>,
}

impl WorkflowFeed {
    pub(super) fn new(pace: Arc<Pace>) -> Self {
        let known = || {
            watch::Sender::new(FeedVersion::Version {
                version: 0,
                over: false,
            })
        };
        let round = Mutex::new(DeliveryRound {
            reading: 0,
            until: Instant::now(),
        });
        Self {
            latest: Mutex::default(),
            round,
            pace,
            known: known(),
            gathered: known(),
        }
    }

    fn round(&self) -> MutexGuard<'_, DeliveryRound> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time from which a reader may get a text of this number of bytes.
    pub(super) fn turn(&self, bytes: usize) -> Instant {
        let turn = self.pace.reserve(bytes, Instant::now());
        self.busy_until(turn);
        turn
    }

    fn busy_until(&self, moment: Instant) {
        let mut round = self.round();
        round.until = round.until.max(moment);
    }

    fn read(&self) -> ReadGuard<'_> {
        self.round().reading += 1;
        ReadGuard(self)
    }

    /// Returns the time from which readers may be notified again. `None` if that is now.
    pub(super) fn busy(&self) -> Option<Instant> {
        let now = Instant::now();
        let round = self.round();
        if round.reading > 0 {
            Some(now + COALESCE_TIME)
        } else {
            Some(round.until).filter(|until| *until > now)
        }
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to each change of the known version.
    pub(super) fn known(&self) -> watch::Receiver<FeedVersion> {
        self.known.subscribe()
    }

    /// Whether the workflow has a reader.
    pub(super) fn has_readers(&self) -> bool {
        self.known.receiver_count() + self.gathered.receiver_count() > 0
    }

    /// Subscribes to the known version, coalesced for readers.
    pub(super) fn readers(&self) -> watch::Receiver<FeedVersion> {
        self.gathered.subscribe()
    }

    /// Returns the update to this version of the workflow, or to a later one.
    pub(super) async fn news(
        &self,
        engine: &Engine,
        id: WorkflowId,
        version: u64,
        since: &ReaderPosition,
    ) -> Result<FeedUpdate, EngineError> {
        let cells = self.cells(version, since);
        let _reading = self.read();
        let write = || async {
            let begin = Instant::now();
            let look = cells
                .look
                .get_or_try_init(|| FeedSnapshot::read(engine, id))
                .await?;
            let news = news_of(engine, Arc::clone(look), since).await;
            let end = Instant::now();
            self.busy_until(end + LONGEST_REST.min((end - begin) * IDLE_FACTOR));
            Ok::<_, EngineError>(news)
        };
        cells.news.get_or_try_init(write).await.cloned()
    }

    fn cells(&self, version: u64, since: &ReaderPosition) -> Cells<'_> {
        let mut latest = self.latest();
        if latest.version < version {
            *latest = Latest {
                version,
                ..Latest::default()
            };
        }
        // Slow readers are at many different versions.
        if latest.news.len() >= MOST_NEWS {
            latest.news.clear();
        }
        let news = Arc::clone(latest.news.entry(since.key()).or_default());
        Cells {
            view: self,
            look: Arc::clone(&latest.look),
            news,
        }
    }

    /// Records a version that was learned. Returns whether it is new.
    pub(super) fn note(&self, learned: FeedVersion) -> bool {
        self.known.send_if_modified(|known| {
            let news = learned > *known;
            if news {
                *known = learned;
            }
            news
        })
    }

    /// Publishes the known version to the readers.
    pub(super) fn tell(&self) {
        let known = *self.known.borrow();
        self.gathered.send_replace(known);
    }

    /// Returns when the workflow seems to have no reader any more.
    pub(super) async fn closed(&self) {
        self.known.closed().await;
        self.gathered.closed().await;
    }
}

/// Cells that one reader shares with others while it reads and writes.
struct Cells<'a> {
    view: &'a WorkflowFeed,
    look: Arc<OnceCell<Arc<FeedSnapshot>>>,
    news: Arc<OnceCell<FeedUpdate>>,
}

impl Drop for Cells<'_> {
    fn drop(&mut self) {
        // This also runs if the reader has gone before it had them. Readers that come later read a
        // large workflow again.
        if self.look.get().is_some_and(|look| look.snapshot.is_large()) {
            let mut latest = self.view.latest();
            if Arc::ptr_eq(&latest.look, &self.look) {
                latest.look = Arc::default();
            }
            latest
                .news
                .retain(|_, other| !Arc::ptr_eq(other, &self.news));
        }
    }
}

async fn news_of(engine: &Engine, look: Arc<FeedSnapshot>, since: &ReaderPosition) -> FeedUpdate {
    let told = Arc::clone(&look.told);
    let large = look.snapshot.is_large();
    let known = match since {
        ReaderPosition::Now => Some(Arc::clone(&told)),
        ReaderPosition::Ever => None,
        ReaderPosition::Told(told) => Some(Arc::clone(told)),
    };
    let write = move || Frames::changes(known.as_ref().map_or(&[], |known| &known.places), &look);
    FeedUpdate {
        told,
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

    use super::super::follower::Feeds;
    use super::*;
    use crate::http::request::ServerHooks;

    fn host() -> ServerHooks {
        ServerHooks::of_test(Timestamp::default())
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
            begin: StartMode::Now,
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
        const LOOK: Duration = Duration::from_millis(50);
        let store = SimulatedStore::new(1);
        let engine = Engine::start(Store::Simulated(store.clone()), EngineOptions::default())
            .await
            .unwrap();
        let id = workflow(&engine).await;
        let views = Arc::new(Feeds::default());
        let host = host();
        let readers: Vec<_> = (0..1_000)
            .map(|_| views.follow(&engine, id, Some(LOOK), &host))
            .collect();
        let before = store.calls();
        let began = Instant::now();
        while store.calls() < before + 3 {
            sleep(LOOK).await;
        }
        let asked = store.calls() - before;
        let looks = began.elapsed().as_millis() / LOOK.as_millis();
        assert!(u128::from(asked) <= looks, "{asked} times");
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
        let version = engine.glance(id).await.unwrap().version;
        let news = async |view: &WorkflowFeed, version| {
            view.news(&engine, id, version, &ReaderPosition::Now)
                .await
                .unwrap()
        };
        let first = news(&one, version).await;
        let same = |other: &FeedUpdate| {
            Arc::ptr_eq(&first.told, &other.told) && Arc::ptr_eq(&first.frames, &other.frames)
        };
        assert!(same(&news(&other, version).await));
        assert!(!same(&news(&other, version + 1).await), "it is read again");
        engine
            .act(id, Action::Cancel, Timestamp::from_micros(2))
            .await
            .unwrap();
        let ended = |known: &FeedVersion| matches!(known, FeedVersion::Version { over: true, version: found } if *found > version);
        known.wait_for(ended).await.unwrap();
        drop((known, others));
        host.tasks.close();
        host.tasks.wait().await;
        assert!(views.each().is_empty(), "nobody follows it");
        assert_ne!(Arc::as_ptr(&follow().0), Arc::as_ptr(&one));
    }

    /// A thousand readers got each change at once, four times a second: other requests waited for
    /// all of them.
    #[tokio::test(start_paused = true)]
    async fn readers_are_told_again_when_all_have_had_their_turn() {
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
        let mut told = view.readers();
        let mut after = async |action| {
            let began = Instant::now();
            engine
                .act(id, action, Timestamp::from_micros(2))
                .await
                .unwrap();
            told.changed().await.unwrap();
            began.elapsed()
        };
        let at_once = COALESCE_TIME..COALESCE_TIME + Duration::from_millis(20);
        assert!(at_once.contains(&after(Action::Pause).await));
        let last = (0..1_000).map(|_| view.turn(100)).max().unwrap();
        let wait = last - Instant::now();
        assert!(wait > COALESCE_TIME && after(Action::Resume).await >= wait);
        assert!(at_once.contains(&after(Action::Pause).await));
        // One of the readers reads, or waits for one that does.
        let reading = view.read();
        let mut waits = Box::pin(after(Action::Resume));
        assert!(timeout(20 * COALESCE_TIME, waits.as_mut()).await.is_err());
        drop(reading);
        assert!(timeout(2 * COALESCE_TIME, waits).await.is_ok());
    }

    /// For each of 256 readers of a workflow of 131,072 jobs, all of its jobs were written, and all
    /// texts were kept as long as one of the readers read.
    #[tokio::test]
    async fn news_of_a_large_workflow_are_written_once_and_kept_by_nobody() {
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
        let version = engine.glance(id).await.unwrap().version;
        let before = store.calls();
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..256 {
            let engine = engine.clone();
            let view = Arc::clone(&view);
            readers.spawn(async move {
                view.news(&engine, id, version, &ReaderPosition::Ever)
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
        let mut leaves = Box::pin(view.news(&engine, id, version, &ReaderPosition::Now));
        let read = poll_fn(|context| {
            let ready = leaves.as_mut().poll(context).is_ready();
            if ready || view.latest().look.get().is_some() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        read.await;
        drop(leaves);
        let looked = async {
            (
                engine.show(id).await.unwrap(),
                engine.show(id).await.unwrap(),
            )
        };
        assert!(
            timeout(Duration::from_secs(20), looked).await.is_ok(),
            "there is room for two"
        );
    }
}
