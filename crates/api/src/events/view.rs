//! What the readers of one workflow share.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_workflow::{Engine, EngineError, JobState, Snapshot, Status, Watching, WorkflowId};
use tokio::sync::{OnceCell, watch};
use tokio::time::sleep;

use crate::edge::ask::Host;

/// What a reader knows: not the workflow itself, since thousands may look at one of thousands of jobs.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) version: u64,
    /// What each job is doing, as its place among the words.
    pub(super) places: Vec<u8>,
}

/// A workflow at one version.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) snapshot: Snapshot,
    pub(super) told: Arc<Told>,
}

/// What is known of a workflow that somebody follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// It has this version at least.
    Version {
        version: u64,
        /// Whether it has ended.
        over: bool,
    },
    Removed,
}

/// What all readers of one workflow share: each version is read once, however many want it, and one asks whether there is another.
#[derive(Debug)]
pub(crate) struct View {
    latest: Mutex<(u64, Arc<OnceCell<Arc<Look>>>)>,
    known: watch::Sender<Known>,
}

impl View {
    fn new() -> Self {
        let nothing = Known::Version { version: 0, over: false };
        Self { latest: Mutex::default(), known: watch::Sender::new(nothing) }
    }

    /// The workflow at this version or a later one.
    pub(super) async fn look(&self, engine: &Engine, id: WorkflowId, version: u64) -> Result<Arc<Look>, EngineError> {
        let cell = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            if latest.0 < version {
                *latest = (version, Arc::default());
            }
            Arc::clone(&latest.1)
        };
        let read = async || {
            // It is kept as long as somebody reads.
            let snapshot = engine.show(id).await?.released();
            let told = Told { version: snapshot.meta().version, places: places(&snapshot) };
            Ok(Arc::new(Look { snapshot, told: Arc::new(told) }))
        };
        cell.get_or_try_init(read).await.cloned()
    }

    /// Takes note of what was learned, and tells the readers if it is news.
    fn note(&self, learned: Known) {
        self.known.send_if_modified(|known| {
            let news = learned > *known;
            if news {
                *known = learned;
            }
            news
        });
    }
}

/// The workflows that somebody follows.
#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<HashMap<WorkflowId, Arc<View>>>);

impl Views {
    fn each(&self) -> MutexGuard<'_, HashMap<WorkflowId, Arc<View>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a workflow until the receiver is dropped. Changes of other servers are asked for every `look`; none: there are no others.
    pub(crate) fn follow(
        self: &Arc<Self>,
        (engine, id): (&Engine, WorkflowId),
        look: Option<Duration>,
        host: &Host,
    ) -> (Arc<View>, watch::Receiver<Known>) {
        let mut each = self.each();
        if let Some(view) = each.get(&id) {
            return (Arc::clone(view), view.known.subscribe());
        }
        let view = Arc::new(View::new());
        let known = view.known.subscribe();
        each.insert(id, Arc::clone(&view));
        let watching = engine.watch(id);
        let follower = Follower { views: Arc::clone(self), view: Arc::clone(&view), engine: engine.clone(), id, look };
        let drain = host.drain.clone();
        host.tasks.spawn(async move { drain.run_until_cancelled(follower.run(watching)).await });
        (view, known)
    }
}

/// Learns what a workflow has become, for all who read it.
struct Follower {
    views: Arc<Views>,
    view: Arc<View>,
    engine: Engine,
    id: WorkflowId,
    look: Option<Duration>,
}

impl Follower {
    async fn run(self, mut watching: Watching) {
        loop {
            let company = async {
                match self.look {
                    Some(look) => sleep(look).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                notice = watching.next() => self.view.note(known(notice.version, notice.status)),
                () = company => self.look().await,
                () = self.view.known.closed() => if self.is_done() { return },
            }
        }
    }

    /// Asks the store.
    async fn look(&self) {
        match self.engine.glance(self.id).await {
            Ok(meta) => self.view.note(known(meta.version, Some(meta.status))),
            Err(EngineError::NoWorkflow { .. }) => self.view.note(Known::Removed),
            // The next look may find more.
            Err(_) => {}
        }
    }

    /// Ends, unless somebody has come in the meantime.
    fn is_done(&self) -> bool {
        let mut each = self.views.each();
        let done = self.view.known.receiver_count() == 0;
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
        if each.get(&self.id).is_some_and(|view| Arc::ptr_eq(view, &self.view)) {
            each.remove(&self.id);
        }
    }
}

fn known(version: u64, status: Option<Status>) -> Known {
    status.map_or(Known::Removed, |status| Known::Version { version, over: status.is_over() })
}

fn places(snapshot: &Snapshot) -> Vec<u8> {
    let place = |state: JobState| JobState::WORDS.iter().position(|word| *word == state.word()).unwrap_or_default();
    snapshot.jobs().iter().map(|job| place(job.state) as u8).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_workflow::{
        Action, Begin, Definition, EngineOptions, Graph, JobDefinition, MemoryStore, NewWorkflow, Store, Timestamp,
    };
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;

    fn host() -> Host {
        let (clock, serving) = (Arc::new(Timestamp::default), Arc::new(|| true));
        let counting = Arc::new(|| crate::readiness::Works::Yes);
        Host { clock, serving, counting, drain: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    async fn workflow(engine: &Engine) -> WorkflowId {
        let jobs = vec![JobDefinition::new("a", "a")];
        let graph = Graph::build(Definition { name: "w".to_owned(), jobs, ..Definition::default() }).unwrap();
        let new = NewWorkflow { graph, begin: Begin::Now, created_at: None };
        engine.create(vec![new], Timestamp::from_micros(1)).await.remove(0).unwrap().workflow
    }

    /// A thousand readers of one idle workflow asked Redis four thousand times a second.
    #[tokio::test]
    async fn a_thousand_readers_of_a_workflow_ask_the_store_as_one_does() {
        const LOOK: Duration = Duration::from_millis(50);
        let store = MemoryStore::new(1);
        let engine = Engine::start(Store::Memory(store.clone()), EngineOptions::default()).await.unwrap();
        let id = workflow(&engine).await;
        let (views, host) = (Arc::new(Views::default()), host());
        let readers: Vec<_> = (0..1_000).map(|_| views.follow((&engine, id), Some(LOOK), &host)).collect();
        let (before, began) = (store.calls(), Instant::now());
        while store.calls() < before + 3 {
            sleep(LOOK).await;
        }
        let (asked, looks) = (store.calls() - before, began.elapsed().as_millis() / LOOK.as_millis());
        assert!(u128::from(asked) <= looks, "{asked} times");
        drop(readers);
    }

    #[tokio::test]
    async fn readers_of_one_workflow_share_what_is_read_and_one_follows_it() {
        let store = Store::Memory(MemoryStore::new(1));
        let engine = Engine::start(store, EngineOptions::default()).await.unwrap();
        let id = workflow(&engine).await;
        let (views, host) = (Arc::new(Views::default()), host());
        let follow = || views.follow((&engine, id), None, &host);
        let (one, mut known) = follow();
        let (other, others) = follow();
        assert_eq!(host.tasks.len(), 1);
        let version = engine.glance(id).await.unwrap().version;
        let first = one.look(&engine, id, version).await.unwrap();
        assert!(Arc::ptr_eq(&first, &other.look(&engine, id, version).await.unwrap()));
        assert!(!Arc::ptr_eq(&first, &other.look(&engine, id, version + 1).await.unwrap()), "it is read again");
        engine.act(id, Action::Cancel, Timestamp::from_micros(2)).await.unwrap();
        let ended = |known: &Known| matches!(known, Known::Version { over: true, version: found } if *found > version);
        known.wait_for(ended).await.unwrap();
        drop((known, others));
        host.tasks.close();
        host.tasks.wait().await;
        assert!(views.each().is_empty(), "nobody follows it");
        assert_ne!(Arc::as_ptr(&follow().0), Arc::as_ptr(&one));
    }
}
