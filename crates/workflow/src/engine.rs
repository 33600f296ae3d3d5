//! The engine connects callers and the store. Its only rules are those of the state machine in
//! `transition`. It caches recent states and the ready jobs of each queue. An actor per partition
//! serves the requests about the workflows of that partition.

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

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Retention of workflows whose definition sets none.
    pub retention: RetentionDefaults,
    /// Bytes of memory for recently used states.
    pub memory: u64,
    /// Callback for each attempt that ended, if any.
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

/// An engine runs workflows. Clones share its state, as do the handles of its other threads.
#[derive(Debug, Clone)]
pub struct Engine {
    core: Arc<Core>,
    /// Index of the thread over whose connections this handle reads the store.
    thread: usize,
}

#[derive(Debug)]
struct Core {
    context: Context,
    /// Threads of the engine, at least one.
    threads: Vec<Thread>,
    spread: ThreadMap,
    states: StateCache,
    /// Actors by the number of their partition.
    desks: Vec<PartitionActor>,
    /// Names that are known to be in the registers of the store.
    names: NameCache,
    terms: PolicyCache,
    /// Progress of the search for registered names that no workflow uses.
    unused: NameExpiry,
    unbegun: Unbegun,
    tasks: TaskTracker,
    apart: BlockingPermits,
}

impl Engine {
    /// Starts an engine over a store. Several engines may use one store at the same time. The
    /// engine works on the runtime of its caller.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn start(store: Store, options: EngineOptions) -> Result<Self, StoreError> {
        Self::start_on(vec![Thread::any(store)], options).await
    }

    /// Starts an engine on these threads, at least one. Each thread has its own connections to the
    /// same store. The returned handle belongs to the first thread.
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

    /// Returns a handle of this engine for callers on one of its threads. The handle reads over the
    /// connections of that thread. Numbers past the last thread wrap around.
    #[must_use]
    pub fn for_thread(&self, thread: usize) -> Self {
        Self {
            core: Arc::clone(&self.core),
            thread: thread % self.core.threads.len(),
        }
    }

    /// Returns the store, with the connections of this handle's thread.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.core.threads[self.thread].store
    }

    /// Returns the Redis clients of all threads, for metrics of their traffic. Empty if the store
    /// is not Redis.
    #[must_use]
    pub fn redis_clients(&self) -> Vec<Client> {
        let clients = |thread: &Thread| match &thread.store {
            Store::Redis(store) => store.clients(),
            _ => Vec::new(),
        };
        self.core.threads.iter().flat_map(clients).collect()
    }

    /// Returns the counts of reported attempts. They may outlive the engine.
    #[must_use]
    pub fn tally(&self) -> Arc<AttemptCounts> {
        Arc::clone(&self.core.context.tally)
    }

    pub(crate) fn queues(&self) -> &QueueCache {
        &self.core.context.queues
    }

    /// Waits until all accepted requests are done, and refuses new ones.
    pub async fn close(&self) {
        self.core.desks.iter().for_each(PartitionActor::close);
        self.core.tasks.close();
        self.core.tasks.wait().await;
    }

    /// Subscribes to the changes of one workflow that this server makes from now on.
    #[must_use]
    pub fn watch(&self, workflow: WorkflowId) -> WatchGuard {
        self.core.context.watchers.watch(workflow)
    }

    /// Applies an action to a workflow, and returns the status of the workflow afterwards.
    ///
    /// # Cancellation
    /// The action may take place although the future is dropped.
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

    /// Applies an action to a workflow if a condition holds.
    ///
    /// # Errors
    /// The state or the condition does not allow it, or the store failed.
    ///
    /// # Cancellation
    /// The action may take place although the future is dropped.
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
