//! The engine connects callers and the store. Its only rules are those of the state machine in
//! `transition`. It caches recent states and the ready jobs of each queue. An actor per partition
//! serves the requests about the workflows of that partition.

pub(crate) mod actor;
pub(crate) mod claim;
pub(crate) mod context;
mod create;
pub(crate) mod limits;
pub(crate) mod list;
mod membership;
mod policies;
mod snapshot;
mod store_health;
pub(crate) mod sweep;
#[cfg(test)]
mod tests;

pub use claim::Claim;
pub use create::{Created, NewWorkflow};
pub use list::{ListedWorkflow, Page};
pub use membership::{Member, ServerDescription};
pub use snapshot::{JobResult, Snapshot, WaitReason, WorkflowSummary};
pub use store_health::{MissedWork, StoreFailure};

use std::sync::Arc;

use tidegate_pipeline::Client;
use tokio_util::task::TaskTracker;

use self::actor::cache::StateCache;
use self::actor::request::{Action, ActionResult, Condition, Request};
use self::actor::run_blocking::BlockingPermits;
use self::context::attempt_counts::AttemptCounts;
use self::context::attempts::AttemptObserver;
use self::context::error::EngineError;
use self::context::thread::EngineThread;
use self::context::watchers::WatchGuard;
use self::create::name_cache::NameCache;
use self::limits::unstarted::UnstartedCharges;
use self::list::seen_tags::SeenTags;
use self::sweep::name_expiry::NameExpiry;
use crate::codec::StoreError;
use crate::model::{Partition, RetentionDefaults, Status, Timestamp, WorkflowId};
use crate::queue::partitions::thread_map::ThreadMap;
use crate::queue::{Paused, QueueCache};
use crate::store::Store;
use actor::PartitionActor;
use claim::CallClock;
use context::Context;
use list::decode_listed;
use membership::Membership;
use policies::PolicyCache;
use store_health::{StoreHealth, StoreOperation};

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Retention of workflows whose definition sets none.
    pub retention: RetentionDefaults,
    /// Bytes of memory for recently used states.
    pub memory_bytes: u64,
    /// Callback for each attempt that ended, if any.
    pub attempt_observer: Option<AttemptObserver>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            retention: RetentionDefaults::default(),
            memory_bytes: 256 << 20,
            attempt_observer: None,
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
    threads: Vec<EngineThread>,
    thread_map: ThreadMap,
    state_cache: StateCache,
    /// Actors by the number of their partition.
    actors: Vec<PartitionActor>,
    /// Names that are known to be in the registers of the store.
    name_cache: NameCache,
    seen_tags: SeenTags,
    policy_cache: PolicyCache,
    /// Progress of the search for registered names that no workflow uses.
    name_expiry: NameExpiry,
    unstarted_charges: UnstartedCharges,
    tasks: TaskTracker,
    blocking_permits: BlockingPermits,
}

impl Engine {
    /// Starts an engine over a store. Several engines may use one store at the same time. The
    /// engine works on the runtime of its caller.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn start(store: Store, options: EngineOptions) -> Result<Self, StoreError> {
        Self::start_on_threads(vec![EngineThread::on_caller_runtime(store)], options).await
    }

    /// Starts an engine on these threads, at least one. Each thread has its own connections to the
    /// same store. The returned handle belongs to the first thread.
    ///
    /// # Errors
    /// The store cannot be read.
    ///
    /// # Panics
    /// There is no thread.
    pub async fn start_on_threads(
        threads: Vec<EngineThread>,
        options: EngineOptions,
    ) -> Result<Self, StoreError> {
        let partitions = threads[0].store.partitions();
        let core = Core {
            context: Context::new(partitions, options.retention, options.attempt_observer),
            thread_map: ThreadMap::new(partitions, threads.len()),
            threads,
            state_cache: StateCache::new(options.memory_bytes),
            actors: (0..partitions)
                .map(|number| PartitionActor::new(Partition(number)))
                .collect(),
            name_cache: NameCache::default(),
            seen_tags: SeenTags::default(),
            policy_cache: PolicyCache::default(),
            name_expiry: NameExpiry::default(),
            unstarted_charges: UnstartedCharges::default(),
            tasks: TaskTracker::new(),
            blocking_permits: BlockingPermits::default(),
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
        let clients = |thread: &EngineThread| match &thread.store {
            Store::Redis(store) => store.clients(),
            _ => Vec::new(),
        };
        self.core.threads.iter().flat_map(clients).collect()
    }

    /// Returns the counts of reported attempts. They may outlive the engine.
    #[must_use]
    pub fn attempt_counts(&self) -> Arc<AttemptCounts> {
        Arc::clone(&self.core.context.attempt_counts)
    }

    pub(crate) fn queues(&self) -> &QueueCache {
        &self.core.context.queues
    }

    /// Waits until all accepted requests are done, and refuses new ones.
    pub async fn close(&self) {
        self.core.actors.iter().for_each(PartitionActor::close);
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
            already_done: answer.already_done,
        })
    }

    async fn read_registers(&self) -> Result<(), StoreError> {
        self.store().verify().await?;
        for name in self.store().paused_queues().await? {
            self.queues().set_paused(&name, Paused::Yes);
        }
        self.refresh_policies(None).await?;
        self.read_known_names().await
    }
}
