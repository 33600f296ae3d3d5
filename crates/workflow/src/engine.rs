//! The engine: recent states in memory, one desk for each partition, ready jobs by queue. It stands between the callers and the store,
//! and its rule is the transition's.

mod claim;
mod create;
mod desk;
mod error;
mod list;
mod queues;
mod snapshot;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::{HashMap, HashSet};
use tokio::sync::{Notify, broadcast, oneshot};
use tokio_util::task::TaskTracker;

pub use self::claim::inputs::Input;
pub use self::desk::play::{Action, Begin};
pub use claim::{Claim, Claimed, Extension, LeaseRef, Report, Reported};
pub use create::{Created, NewWorkflow};
pub use error::EngineError;
pub use list::{Cursor, Filter, Listed, Page, Query, QueueState};
pub use queues::Paused;
pub use snapshot::{JobResult, Reason, Snapshot};
pub use sweep::HORIZON;

use self::desk::group::Posted;
use self::desk::play::{Answer, Request};
use self::desk::turn::Turn;
use desk::Desk;
use queues::Queues;

use crate::id::{Partition, WorkflowId};
use crate::state::{JobState, RetentionDefaults, Status};
use crate::store::{Register, Store, StoreError};
use crate::time::Timestamp;

/// Notices that a slow subscriber may be behind.
const NOTICES: usize = 1_024;
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

    /// Does something to a workflow, and says what it is doing now.
    ///
    /// # Cancellation
    /// When the future is dropped, it may take place all the same.
    pub async fn act(&self, workflow: WorkflowId, action: Action, now: Timestamp) -> Result<Status, EngineError> {
        let answer = self.ask(workflow, Request::Act(action), now).await?;
        Ok(answer.status.expect("an action answers with the status"))
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
}

/// What the register says of a paused queue.
const PAUSED: &str = "paused";
