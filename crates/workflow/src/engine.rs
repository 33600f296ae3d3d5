//! The engine: recent states in memory, one desk for each partition, ready jobs by queue. It stands between the callers and the store,
//! and its rule is the transition's.

mod claim;
mod desk;
mod error;
mod list;
mod play;
mod queues;
mod snapshot;
#[cfg(test)]
mod tests;
mod turn;
mod undelivered;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

pub use claim::{Claim, Claimed, Extension, Input, LeaseRef, Report, Reported};
pub use error::EngineError;
pub use list::{Cursor, Filter, Listed, Page, Query, QueueState};
pub use play::{Action, Begin};
pub use queues::Paused;
pub use snapshot::{JobResult, Reason, Snapshot};

use desk::{Desk, Posted};
use play::{Answer, Request};
use queues::Queues;
use turn::Turn;

use crate::codec::{decode, encode};
use crate::graph::Graph;
use crate::id::{Partition, WorkflowId};
use crate::state::{JobState, Meta, RetentionDefaults, Status};
use crate::store::{Clockwork, Register, Store, StoreError};
use crate::time::Timestamp;

/// How far ahead a sweep looks. Sweeps that follow each other this closely are never late.
pub const HORIZON: Duration = Duration::from_secs(1);
/// Due workflows of each partition that one sweep looks at.
const SWEEP: usize = 256;
/// Notices that a slow subscriber may be behind.
const NOTICES: usize = 1_024;
/// Names that are entered at a time, so that they share writes.
const ENTERED: usize = 256;

/// What an engine is told at its start.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// How long workflows are kept that say nothing about it themselves.
    pub retention: RetentionDefaults,
    /// Memory for recently used states, in bytes.
    pub memory: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { retention: RetentionDefaults::default(), memory: 256 << 20 }
    }
}

/// Graphs of jobs at work. Clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    core: Arc<Core>,
}

#[derive(Debug)]
struct Core {
    store: Store,
    options: EngineOptions,
    desks: Vec<Desk>,
    queues: Queues,
    /// Names that are in the store's registers already.
    registered: Mutex<HashSet<(bool, String)>>,
    notices: broadcast::Sender<(WorkflowId, Arc<Notice>)>,
    /// The earliest timer known that no sweep has served, in microseconds.
    expected: AtomicU64,
    /// That moment has become an earlier one.
    sooner: Notify,
    tasks: TaskTracker,
}

/// What changed in a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What it is doing now; None when it was removed.
    pub status: Option<Status>,
    /// Jobs that changed, by their place.
    pub jobs: Vec<(crate::id::JobIndex, JobState)>,
}

/// A graph to create a workflow of.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWorkflow {
    /// What to run.
    pub graph: Graph,
    /// What becomes of it then.
    pub begin: Begin,
    /// When it was created elsewhere; None is now.
    pub created_at: Option<Timestamp>,
}

/// A workflow that was created, or that was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// Its id.
    pub workflow: WorkflowId,
    /// What it is doing.
    pub status: Status,
    /// It was created earlier, with the same idempotency key.
    pub existing: bool,
}

impl Engine {
    /// An engine over a store. Several may use one store at the same time.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn start(store: Store, options: EngineOptions) -> Result<Self, StoreError> {
        let partitions = store.partitions();
        let share = options.memory / u64::from(partitions.max(1));
        let core = Core {
            desks: (0..partitions).map(|number| Desk::new(Partition(number), share)).collect(),
            store,
            options,
            queues: Queues::default(),
            registered: Mutex::default(),
            notices: broadcast::Sender::new(NOTICES),
            expected: AtomicU64::new(u64::MAX),
            sooner: Notify::new(),
            tasks: TaskTracker::new(),
        };
        let engine = Self { core: Arc::new(core) };
        engine.read_registers().await?;
        Ok(engine)
    }

    /// Where its workflows live.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.core.store
    }

    pub(crate) fn retention(&self) -> RetentionDefaults {
        self.core.options.retention
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.core.queues
    }

    /// Waits until all that was asked for is done, and refuses what comes.
    pub async fn close(&self) {
        self.core.desks.iter().for_each(Desk::close);
        self.core.tasks.close();
        self.core.tasks.wait().await;
    }

    /// Changes of all workflows, from now on. A slow reader loses the oldest.
    #[must_use]
    pub fn notices(&self) -> broadcast::Receiver<(WorkflowId, Arc<Notice>)> {
        self.core.notices.subscribe()
    }

    pub(crate) fn announce(&self, id: WorkflowId, notice: impl FnOnce() -> Notice) {
        if self.core.notices.receiver_count() > 0 {
            // Nobody listens any more: that is fine.
            let _none = self.core.notices.send((id, Arc::new(notice())));
        }
    }

    pub(crate) fn expect_by(&self, moment: Timestamp) {
        if moment.micros() < self.core.expected.fetch_min(moment.micros(), Relaxed) {
            self.core.sooner.notify_one();
        }
    }

    /// Returns when [`Engine::next_due`] has become earlier than it was. For one task at a time.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub async fn sooner(&self) {
        self.core.sooner.notified().await;
    }

    /// The earliest moment at which a workflow wants a sweep, of those changed here and those that the last sweep saw within
    /// [`HORIZON`].
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let micros = self.core.expected.load(Relaxed);
        (micros != u64::MAX).then_some(Timestamp::from_micros(micros))
    }

    /// Creates workflows, each for itself; answers in their order.
    ///
    /// # Cancellation
    /// When the future is dropped, any of them may have been created.
    pub async fn create(&self, new: Vec<NewWorkflow>, now: Timestamp) -> Vec<Result<Created, EngineError>> {
        if let Err(error) = self.register(&new).await {
            return new.iter().map(|_| Err(error.clone().into())).collect();
        }
        let mut keyed = Vec::new();
        let mut posts = Vec::with_capacity(new.len());
        for NewWorkflow { graph, begin, created_at } in new {
            let partition = self.partition_for(graph.idempotency_key.as_deref());
            let created_at = created_at.unwrap_or(now);
            let id = WorkflowId::new(created_at, partition, fastrand::u128(..));
            let graph = Arc::new(graph);
            keyed.push(graph.idempotency_key.is_some().then(|| Arc::clone(&graph)));
            posts.push((id, Request::Create { graph, begin, created_at }));
        }
        let ids: Vec<WorkflowId> = posts.iter().map(|(id, _)| *id).collect();
        let answers = self.ask_all(posts, now).await;
        let mut created = Vec::with_capacity(answers.len());
        for ((id, graph), answer) in ids.into_iter().zip(keyed).zip(answers) {
            created.push(match (answer, graph) {
                (Ok(Answer { existing: Some(existing), .. }), Some(graph)) => self.same(existing, &graph).await,
                (Ok(answer), _) => {
                    let status = answer.status.expect("a creation answers with the status");
                    Ok(Created { workflow: id, status, existing: false })
                }
                (Err(error), _) => Err(error),
            });
        }
        created
    }

    /// Whether the workflow that has an idempotency key is of the same graph.
    async fn same(&self, existing: WorkflowId, graph: &Graph) -> Result<Created, EngineError> {
        let stored = self.store().load(&[existing]).await?.pop().flatten();
        // It was removed just now, and the key is free.
        let Some(stored) = stored else { return Err(EngineError::Contended { workflow: existing }) };
        if stored.graph == encode(graph) {
            let meta: Meta = decode(&stored.state.meta, || format!("the state of workflow {existing}"))?;
            return Ok(Created { workflow: existing, status: meta.status, existing: true });
        }
        let key = graph.idempotency_key.clone().unwrap_or_default();
        Err(EngineError::KeyMismatch { key, workflow: existing })
    }

    /// The workflow that was created with an idempotency key.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn find_by_key(&self, key: &str) -> Result<Option<WorkflowId>, StoreError> {
        self.store().keyed(self.partition_for(Some(key)), key).await
    }

    /// Does something to a workflow, and says what it is doing now.
    ///
    /// # Cancellation
    /// When the future is dropped, it may take place all the same.
    pub async fn act(&self, workflow: WorkflowId, action: Action, now: Timestamp) -> Result<Status, EngineError> {
        let answer = self.ask(workflow, Request::Act(action), now).await?;
        Ok(answer.status.expect("an action answers with the status"))
    }

    /// Does what time has come for: retries, ends of leases, timeouts, removals. Returns whether more may be due already.
    ///
    /// # Errors
    /// The store cannot be read. What cannot be written stays due.
    pub async fn sweep(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.core.expected.store(u64::MAX, Relaxed);
        self.queues().pass(now);
        let until = now + HORIZON;
        let (mut timers, mut expiries) = tokio::try_join!(
            self.store().due(Clockwork::Timers, until, SWEEP),
            self.store().due(Clockwork::Expiries, until, SWEEP),
        )?;
        let mut more = false;
        for found in [&mut timers, &mut expiries] {
            let upcoming = found.iter().map(|&(_, at)| at).filter(|&at| at > now).min();
            upcoming.into_iter().for_each(|at| self.expect_by(at));
            found.retain(|&(_, at)| at <= now);
            more |= found.len() >= SWEEP;
        }
        let ticks = timers.into_iter().map(|(id, _)| (id, Request::Tick));
        let purges = expiries.into_iter().map(|(id, _)| (id, Request::Purge));
        for answer in self.ask_all(ticks.chain(purges).collect(), now).await {
            match answer {
                // Another server did it, or somebody extended it.
                Ok(_) | Err(EngineError::NoWorkflow { .. } | EngineError::Refused(_)) => {}
                Err(error) => tracing::warn!(%error, "a workflow that is due was not served"),
            }
        }
        Ok(more)
    }

    /// Looks for what other servers have done: which queues they paused, and what they put into those that somebody waits for here.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn look_around(&self) -> Result<(), StoreError> {
        for (name, value) in self.store().register(Register::Queues).await? {
            self.queues().set_paused(&name, if value == PAUSED { Paused::Yes } else { Paused::No });
        }
        let wanted = self.queues().doubt();
        if wanted.is_empty() { Ok(()) } else { self.refill(&wanted).await }
    }

    /// Asks for one workflow.
    pub(crate) async fn ask(&self, id: WorkflowId, request: Request, now: Timestamp) -> Result<Answer, EngineError> {
        let mut answers = self.ask_all(vec![(id, request)], now).await;
        answers.pop().expect("one answer for one request")
    }

    /// Asks for many workflows at the same time; answers in their order.
    pub(crate) async fn ask_all(
        &self,
        requests: Vec<(WorkflowId, Request)>,
        now: Timestamp,
    ) -> Vec<Result<Answer, EngineError>> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut posts: HashMap<Partition, Vec<Posted>> = HashMap::new();
        for (workflow, request) in requests {
            let (answer, receiver) = oneshot::channel();
            let posted = Posted { workflow, request, now, answer };
            posts.entry(workflow.partition()).or_default().push(posted);
            answers.push(receiver);
        }
        for (partition, posted) in posts {
            self.post(partition, posted);
        }
        let mut answered = Vec::with_capacity(answers.len());
        for answer in answers {
            answered.push(answer.await.unwrap_or(Err(EngineError::Closed)));
        }
        answered
    }

    pub(crate) fn post(&self, partition: Partition, posted: Vec<Posted>) {
        let Some(desk) = self.core.desks.get(usize::from(partition.0)) else {
            // The id names a partition that this store does not have.
            return posted.into_iter().for_each(|posted| {
                let workflow = posted.workflow;
                let _left = posted.answer.send(Err(EngineError::NoWorkflow { workflow }));
            });
        };
        match desk.post(posted) {
            Ok(false) => {}
            Ok(true) => {
                self.core.tasks.spawn(Turn::new(self, partition).serve());
            }
            Err((posted, error)) => posted.into_iter().for_each(|posted| {
                let _left = posted.answer.send(Err(error.clone()));
            }),
        }
    }

    /// Any partition, or the one that a key decides, so that all who use it meet there.
    fn partition_for(&self, key: Option<&str>) -> Partition {
        let partitions = self.store().partitions();
        Partition(match key {
            Some(key) => (fnv(key.as_bytes()) % u64::from(partitions)) as u16,
            None => fastrand::u16(..partitions),
        })
    }

    async fn read_registers(&self) -> Result<(), StoreError> {
        let (queues, names) =
            tokio::try_join!(self.store().register(Register::Queues), self.store().register(Register::Names))?;
        for (name, value) in &queues {
            self.queues().set_paused(name, if value == PAUSED { Paused::Yes } else { Paused::No });
        }
        let mut registered = self.core.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.extend(queues.into_iter().map(|(name, _)| (true, name)));
        registered.extend(names.into_iter().map(|(name, _)| (false, name)));
        Ok(())
    }

    /// Enters names of queues and workflows that are new, so that they can be listed.
    async fn register(&self, new: &[NewWorkflow]) -> Result<(), StoreError> {
        let mut unknown: HashSet<(bool, String)> = HashSet::new();
        {
            let registered = self.core.registered.lock().unwrap_or_else(PoisonError::into_inner);
            let mut note = |is_queue: bool, name: &String| {
                let entry = (is_queue, name.clone());
                if !registered.contains(&entry) {
                    unknown.insert(entry);
                }
            };
            for NewWorkflow { graph, .. } in new {
                note(false, &graph.label.name);
                graph.jobs.iter().for_each(|job| note(true, &job.queue));
            }
        }
        for (is_queue, register) in [(true, Register::Queues), (false, Register::Names)] {
            let names: Vec<&String> =
                unknown.iter().filter(|(kind, _)| *kind == is_queue).map(|(_, name)| name).collect();
            if !names.is_empty() {
                self.enter_missing(register, &names).await?;
            }
        }
        self.core.registered.lock().unwrap_or_else(PoisonError::into_inner).extend(unknown);
        Ok(())
    }

    /// Enters names that a register does not have. Another server may have entered and paused one of them: its entry must stay.
    async fn enter_missing(&self, register: Register, names: &[&String]) -> Result<(), StoreError> {
        let known: HashSet<String> = self.store().register(register).await?.into_iter().map(|(name, _)| name).collect();
        let missing: Vec<&&String> = names.iter().filter(|name| !known.contains(name.as_str())).collect();
        for some in missing.chunks(ENTERED) {
            let mut entering = JoinSet::new();
            for name in some {
                let (store, name) = (self.store().clone(), name.to_string());
                entering.spawn(async move { store.enter(register, &name, Some("")).await });
            }
            while let Some(entered) = entering.join_next().await {
                entered.unwrap_or_else(|error| Err(StoreError::Unavailable { reason: error.to_string() }))?;
            }
        }
        Ok(())
    }
}

/// What the register says of a paused queue.
const PAUSED: &str = "paused";

/// FNV-1a: the same in every version of every program, as a place in the store must be.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
