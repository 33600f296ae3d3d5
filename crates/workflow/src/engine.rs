//! The engine connects callers and the store. Its only rules are those of the state machine in `transition`. It keeps recent states
//! in memory, has a desk for each partition that serves the requests there, and knows the ready jobs of each queue.

pub(crate) mod actor;
pub(crate) mod attempts;
pub(crate) mod claim;
pub(crate) mod context;
pub(crate) mod create;
pub(crate) mod error;
pub(crate) mod limits;
pub(crate) mod list;
pub(crate) mod membership;
pub(crate) mod notes;
pub(crate) mod partial;
pub(crate) mod policies;
pub(crate) mod post;
pub(crate) mod queues;
pub(crate) mod snapshot;
pub(crate) mod store_health;
pub(crate) mod sweep;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tidegate_pipeline::Client;
use tokio_util::task::TaskTracker;

use self::actor::PartitionActor;
use self::actor::cache::StateCache;
use self::actor::request::{Action, ActionResult, Condition, Request};
use self::attempts::Attempts;
use self::context::Context;
use self::context::attempt_counts::AttemptCounts;
use self::context::watchers::WatchGuard;
use self::create::name_cache::NameCache;
use self::error::EngineError;
use self::limits::unbegun::Unbegun;
use self::policies::PolicyCache;
use self::post::run_blocking::BlockingPermits;
use self::post::thread::Thread;
use self::post::thread_map::ThreadMap;
use self::queues::{Paused, QueueCache};
use self::sweep::name_expiry::NameExpiry;
use crate::id::{Partition, WorkflowId};
use crate::state::{RetentionDefaults, Status};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// What an engine is told at its start.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// How long workflows are kept that say nothing about it themselves.
    pub retention: RetentionDefaults,
    /// Memory for recently used states, in bytes.
    pub memory: u64,
    /// Who is told of each attempt that ended. None: nobody.
    pub attempts: Option<Attempts>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            retention: RetentionDefaults::default(),
            memory: 256 << 20,
            attempts: None,
        }
    }
}

/// Graphs of jobs at work. Clones are the same engine, and so is that of another of its threads.
#[derive(Debug, Clone)]
pub struct Engine {
    core: Arc<Core>,
    /// Where this one reads the store.
    thread: usize,
}

#[derive(Debug)]
struct Core {
    context: Context,
    /// At least one.
    threads: Vec<Thread>,
    spread: ThreadMap,
    states: StateCache,
    /// One for each partition.
    desks: Vec<PartitionActor>,
    /// Names that are in the store's registers.
    names: NameCache,
    terms: PolicyCache,
    /// How far the search for names got that nobody uses.
    unused: NameExpiry,
    unbegun: Unbegun,
    tasks: TaskTracker,
    apart: BlockingPermits,
}

impl Engine {
    /// An engine over a store. Several may use one store at the same time. It works on the runtime of whoever calls it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn start(store: Store, options: EngineOptions) -> Result<Self, StoreError> {
        Self::start_on(vec![Thread::any(store)], options).await
    }

    /// An engine that works on these threads, at least one, each with its own way to the same store. This handle is the first one's.
    ///
    /// # Errors
    /// The store cannot be read.
    ///
    /// # Panics
    /// There is no thread.
    pub async fn start_on(
        threads: Vec<Thread>,
        options: EngineOptions,
    ) -> Result<Self, StoreError> {
        let partitions = threads[0].store.partitions();
        let core = Core {
            context: Context::new(partitions, options.retention, options.attempts),
            spread: ThreadMap::new(partitions, threads.len()),
            threads,
            states: StateCache::new(options.memory),
            desks: (0..partitions)
                .map(|number| PartitionActor::new(Partition(number)))
                .collect(),
            names: NameCache::default(),
            terms: PolicyCache::default(),
            unused: NameExpiry::default(),
            unbegun: Unbegun::default(),
            tasks: TaskTracker::new(),
            apart: BlockingPermits::default(),
        };
        let engine = Self {
            core: Arc::new(core),
            thread: 0,
        };
        engine.read_registers().await?;
        Ok(engine)
    }

    /// The same engine for callers on one of its threads: what they read comes over that thread's connections. There is always one: numbers
    /// beyond the last begin again with the first.
    #[must_use]
    pub fn for_thread(&self, thread: usize) -> Self {
        Self {
            core: Arc::clone(&self.core),
            thread: thread % self.core.threads.len(),
        }
    }

    /// Where its workflows live.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.core.threads[self.thread].store
    }

    /// What its connections to Redis belong to, for whoever counts what goes over them. Empty where its workflows are elsewhere.
    #[must_use]
    pub fn redis_clients(&self) -> Vec<Client> {
        let clients = |thread: &Thread| match &thread.store {
            Store::Redis(store) => store.clients(),
            _ => Vec::new(),
        };
        self.core.threads.iter().flat_map(clients).collect()
    }

    /// What it counts. Others may keep it longer than the engine.
    #[must_use]
    pub fn tally(&self) -> Arc<AttemptCounts> {
        Arc::clone(&self.core.context.tally)
    }

    pub(crate) fn queues(&self) -> &QueueCache {
        &self.core.context.queues
    }

    /// Waits until all that was asked for is done, and refuses what comes.
    pub async fn close(&self) {
        self.core.desks.iter().for_each(PartitionActor::close);
        self.core.tasks.close();
        self.core.tasks.wait().await;
    }

    /// Changes of one workflow that this server makes, from now on.
    #[must_use]
    pub fn watch(&self, workflow: WorkflowId) -> WatchGuard {
        self.core.context.watchers.watch(workflow)
    }

    /// Does something to a workflow, and says what it is doing now.
    ///
    /// # Cancellation
    /// When the future is dropped, it may take place all the same.
    pub async fn act(
        &self,
        workflow: WorkflowId,
        action: Action,
        now: Timestamp,
    ) -> Result<Status, EngineError> {
        Ok(self
            .act_if(workflow, action, Condition::default(), now)
            .await?
            .status)
    }

    /// Does something to a workflow under a condition.
    ///
    /// # Errors
    /// The state or the condition does not allow it, or the store failed.
    ///
    /// # Cancellation
    /// When the future is dropped, it may take place all the same.
    pub async fn act_if(
        &self,
        workflow: WorkflowId,
        action: Action,
        condition: Condition,
        now: Timestamp,
    ) -> Result<ActionResult, EngineError> {
        let answer = self
            .request(workflow, Request::Act(action, condition), now)
            .await?;
        Ok(ActionResult {
            status: answer.status.expect("an action answers with the status"),
            already: answer.already,
        })
    }

    async fn read_registers(&self) -> Result<(), StoreError> {
        self.store().look().await?;
        for name in self.store().paused_queues().await? {
            self.queues().set_paused(&name, Paused::Yes);
        }
        self.read_terms(None).await?;
        self.read_known_names().await
    }
}
