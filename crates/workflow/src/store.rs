//! Stores of workflows. A store applies changes and reads. It does not know what a change means.

/// The same of whichever store it is. Before the modules, which use it too.
macro_rules! each_store {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            #[cfg(feature = "test-util")]
            Store::Simulated($store) => $call,
            Store::Sqlite($store) => $call,
            Store::Redis($store) => $call,
        }
    };
}

pub(crate) mod change_notice;
pub(crate) mod error;
pub(crate) mod lane_scan;
pub(crate) mod migration;
pub(crate) mod notes;
pub(crate) mod permits;
pub(crate) mod policies;
pub(crate) mod probe;
pub(crate) mod query;
pub(crate) mod redis;
pub(crate) mod register;
pub(crate) mod release;
pub(crate) mod shared_table;
#[cfg(feature = "test-util")]
pub(crate) mod simulated;
pub(crate) mod sqlite;
pub(crate) mod subscription;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::change_notice::{Notifier, ServerId};
use self::error::StoreError;
use self::probe::Probe;
use self::query::{EncodedSummary, Order, RowRange, RowSet, TimeIndex};
use self::redis::RedisStore;
use self::redis::durability::Durability;
#[cfg(feature = "test-util")]
use self::simulated::SimulatedStore;
use self::sqlite::SqliteStore;
use self::subscription::{Broadcast, Subscription};
use crate::codec::change::{Applied, Change, NewerState, ResultField, Stamp, Stored, StoredState};
use crate::codec::format::Format;
use crate::codec::rows::Row;
use crate::engine::membership::HeartbeatQuery;
use crate::id::{JobIndex, Partition, WorkflowId};
use crate::time::Timestamp;
use crate::workflow::write_set::WriteOptions;

/// Who has said that it lives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Roll {
    /// By the names of servers.
    pub(crate) entries: Vec<(String, String)>,
    /// The time by the clock that all follow, if it is told.
    pub(crate) time: Option<Timestamp>,
    /// The entry that was written was not there before.
    pub(crate) anew: bool,
}

/// A store of workflows.
#[derive(Debug, Clone)]
pub enum Store {
    /// In one SQLite file, or in the memory of this process.
    Sqlite(SqliteStore),
    /// In Redis.
    Redis(RedisStore),
    /// In tests: shared by the servers of one process, with faults that the test injects.
    #[cfg(feature = "test-util")]
    Simulated(SimulatedStore),
}

impl Store {
    /// The same store for another thread: in Redis over connections of its own.
    ///
    /// # Panics
    /// Outside a tokio runtime, on which its connections will be.
    #[must_use]
    pub fn for_new_thread(&self) -> Self {
        match self {
            Self::Redis(store) => Self::Redis(store.again()),
            other => other.clone(),
        }
    }

    /// The number of partitions, fixed when the store was made.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        each_store!(self, store => store.partitions())
    }

    /// How it is written.
    #[must_use]
    pub fn format(&self) -> Format {
        each_store!(self, store => store.format())
    }

    /// How changes are made for it.
    pub(crate) fn style(&self) -> WriteOptions {
        let most = if let Self::Redis(_) = self {
            redis::LARGE
        } else {
            usize::MAX
        };
        WriteOptions {
            format: self.format(),
            max_inline: most,
        }
    }

    /// How many requests share a write at most: enough for it to be worth while, few enough that the first does not wait long for the last.
    pub(crate) fn round(&self) -> usize {
        match self {
            // A write is a sync of the disk, and a call may create a thousand workflows in few partitions.
            Self::Sqlite(_) => sqlite::GROUP,
            _ => 256,
        }
    }

    /// Whether a migration of it has begun and not ended. A server notices that at its next look.
    #[must_use]
    pub fn is_migrating(&self) -> bool {
        match self {
            Self::Sqlite(store) => store.schema().is_migrating(),
            Self::Redis(store) => store.schema().is_migrating(),
            #[cfg(feature = "test-util")]
            Self::Simulated(_) => false,
        }
    }

    pub(crate) fn all_partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.partitions()).map(Partition)
    }

    /// Applies changes of one partition, independently of each other. The outcomes are in the same order.
    ///
    /// # Errors
    /// None of them was applied, or, with [`StoreError::Unknown`] and [`StoreError::Torn`], any of them may have been. With the latter,
    /// rows of those that were not may be there or missing.
    ///
    /// # Cancellation
    /// When the future is dropped, any of them may have been applied.
    pub async fn apply(
        &self,
        partition: Partition,
        changes: &[Change],
    ) -> Result<Vec<Applied>, StoreError> {
        match self {
            Self::Sqlite(store) => store.apply(partition, changes.into()).await,
            Self::Redis(store) => store.apply(partition, changes, None).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.apply(partition, changes, None).await,
        }
    }

    /// [`Store::apply`], and tells other servers about it as `announcer` says.
    pub(crate) async fn apply_as(
        &self,
        partition: Partition,
        changes: &Arc<[Change]>,
        announcer: Option<&Notifier>,
    ) -> Result<Vec<Applied>, StoreError> {
        match self {
            Self::Sqlite(store) => store.apply(partition, Arc::clone(changes)).await,
            Self::Redis(store) => store.apply(partition, changes, announcer).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.apply(partition, changes, announcer).await,
        }
    }

    /// Asks whether the store serves a partition. Nothing is changed, and it takes a second at most in Redis.
    pub async fn probe(&self, partition: Partition) -> Probe {
        each_store!(self, store => store.probe(partition).await)
    }

    /// Reads workflows. None for a workflow that does not exist.
    pub async fn load(&self, ids: &[WorkflowId]) -> Result<Vec<Option<Stored>>, StoreError> {
        each_store!(self, store => store.load(ids).await)
    }

    /// The meta of a workflow and the records of these jobs, as far as they have one, all of one moment. None: it does not exist.
    pub async fn excerpt(
        &self,
        id: WorkflowId,
        jobs: &[JobIndex],
    ) -> Result<Option<StoredState>, StoreError> {
        self.excerpts(&[(id, jobs.to_vec())])
            .await
            .pop()
            .unwrap_or(Ok(None))
    }

    /// The same of several workflows, each of a moment of its own. The state of a small one comes whole.
    pub(crate) async fn excerpts(
        &self,
        wanted: &[(WorkflowId, Vec<JobIndex>)],
    ) -> Vec<Result<Option<StoredState>, StoreError>> {
        each_store!(self, store => store.excerpts(wanted).await)
    }

    /// What was written to a workflow of so many jobs after this write. None: the store does not know, or the workflow is gone.
    pub(crate) async fn later(
        &self,
        id: WorkflowId,
        jobs: usize,
        since: Stamp,
    ) -> Result<Option<NewerState>, StoreError> {
        match self {
            Self::Redis(store) => store.later(id, jobs, since).await,
            _ => Ok(None),
        }
    }

    /// The graph of a workflow, encoded. None: it does not exist.
    pub async fn graph(&self, id: WorkflowId) -> Result<Option<Vec<u8>>, StoreError> {
        each_store!(self, store => store.graph(id).await)
    }

    /// The sizes of the graphs of workflows in bytes, which is most of what [`Store::load`] reads. 0 for one that does not exist.
    pub async fn sizes(&self, ids: &[WorkflowId]) -> Result<Vec<u64>, StoreError> {
        each_store!(self, store => store.sizes(ids).await)
    }

    /// Reads what lists show. None for a workflow that does not exist.
    pub async fn heads(
        &self,
        ids: &[WorkflowId],
    ) -> Vec<Result<Option<EncodedSummary>, StoreError>> {
        each_store!(self, store => store.heads(ids).await)
    }

    /// Reads results of workflows: for each a list as long as its list of fields.
    pub async fn results(
        &self,
        wanted: &[(WorkflowId, Vec<ResultField>)],
    ) -> Result<Vec<Vec<Option<Bytes>>>, StoreError> {
        each_store!(self, store => store.results(wanted).await)
    }

    /// For each of `partitions` the ready rows that begin with each prefix: at most `limit` of each, lowest first.
    pub async fn ready(
        &self,
        prefixes: &[Row],
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<Vec<Row>>, StoreError>> {
        each_store!(self, store => store.ready(prefixes, limit, partitions).await)
    }

    /// For each of `partitions` at most `limit` workflows whose time is `until` or earlier: the earliest, sorted by time.
    pub async fn due(
        &self,
        which: TimeIndex,
        until: Timestamp,
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(WorkflowId, Timestamp)>, StoreError>> {
        each_store!(self, store => store.due(which, until, limit, partitions).await)
    }

    /// At most `limit` ids of each (partition, span), in order.
    pub async fn page(
        &self,
        spans: &[(Partition, RowRange)],
        order: Order,
        limit: usize,
    ) -> Vec<Result<Vec<WorkflowId>, StoreError>> {
        each_store!(self, store => store.page(spans, order, limit).await)
    }

    /// For each of `partitions` the number of rows of each span.
    pub async fn count(
        &self,
        spans: &[RowRange],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<u64>, StoreError>> {
        each_store!(self, store => store.count(spans, partitions).await)
    }

    /// For each of `partitions` the number of ready rows that begin with each prefix, and the first of them. Prefixes are of queues, or of lanes
    /// with limits.
    pub async fn ready_depth(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(u64, Option<Row>)>, StoreError>> {
        each_store!(self, store => store.ready_depth(prefixes, partitions).await)
    }

    /// The workflow that has an idempotency key, which decides the partition.
    pub async fn keyed(
        &self,
        partition: Partition,
        key: &str,
    ) -> Result<Option<WorkflowId>, StoreError> {
        each_store!(self, store => store.keyed(partition, key).await)
    }

    /// At most `limit` rows of a set, ascending by their bytes, all of them after `after`.
    pub async fn rows(
        &self,
        partition: Partition,
        set: RowSet,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        each_store!(self, store => store.rows(partition, set, after, limit).await)
    }

    /// Workflows of a partition that have a state, whatever rows they have: some of them, and what to ask from for the next; 0 begins, and
    /// ends. One may be told twice. All keys or rows of the store are gone through for that. None: Redis does not permit it.
    pub async fn states(
        &self,
        partition: Partition,
        from: u64,
    ) -> Result<Option<(u64, Vec<WorkflowId>)>, StoreError> {
        match self {
            Self::Sqlite(store) => Ok(Some((0, store.states(partition).await?))),
            Self::Redis(store) => store.states(partition, from).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => Ok(Some((0, store.states(partition).await?))),
        }
    }

    /// What the nodes of a store in Redis do to keep what they have. Empty where that is not the question, or is not told.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn durability(&self) -> Result<Durability, StoreError> {
        match self {
            Self::Redis(store) => store.durability().await,
            _ => Ok(Durability::default()),
        }
    }

    /// Whether workflows of one partition still have these states (the bytes of their metas), and all that was written before is as safe as
    /// an acknowledged write must be. Where one disk or one Redis is enough for that, nothing is asked, and the answer is yes.
    ///
    /// # Errors
    /// It is not known.
    pub(crate) async fn confirm(
        &self,
        partition: Partition,
        states: &[(WorkflowId, Option<Vec<u8>>)],
    ) -> Result<bool, StoreError> {
        match self {
            Self::Redis(store) => store.confirm(partition, states).await,
            _ => Ok(true),
        }
    }

    /// Whether a write that one Redis has is not acknowledged yet.
    pub(crate) fn waits_for_replicas(&self) -> bool {
        matches!(self, Self::Redis(store) if store.replicas() > 0)
    }

    /// The time by the clock that all servers of the store follow. None: there is only one server, and its clock counts.
    ///
    /// # Errors
    /// Redis does not answer, or does not allow TIME.
    pub async fn time(&self) -> Result<Option<Timestamp>, StoreError> {
        match self {
            Self::Redis(store) => store.time().await.map(Some),
            _ => Ok(None),
        }
    }

    /// Writes that a server lives, forgets those of `gone`, and reads who else does. None: nobody else can use the store.
    ///
    /// # Errors
    /// The servers cannot be read.
    pub(crate) async fn servers(
        &self,
        own: Option<(ServerId, &str)>,
        gone: &[ServerId],
        asks: HeartbeatQuery,
    ) -> Result<Option<Roll>, StoreError> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Redis(store) => store.servers(own, gone, asks).await.map(Some),
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.servers(own, gone).await.map(Some),
        }
    }

    /// Calls out to all servers that listen. Nobody may have heard it.
    pub(crate) async fn call_out(&self, by: ServerId, call: Broadcast) {
        match self {
            Self::Sqlite(_) => {}
            Self::Redis(store) => store.publish(&call.write(by)).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.tell(subscription::Topic::Servers, &call.write(by)),
        }
    }

    /// Returns when this server may tell others things, or when it may not: that is asked again and again, after waits of `apart`. Never
    /// where that does not change.
    pub(crate) async fn until_voice(&self, may: bool, apart: &impl Fn() -> Duration) {
        match self {
            Self::Redis(store) => store.publish_changed(may, apart).await,
            _ => std::future::pending().await,
        }
    }

    /// Listens to other servers. None: there are none, or they cannot be heard now.
    pub(crate) fn listen(&self) -> Option<Subscription> {
        match self {
            Self::Sqlite(_) => None,
            Self::Redis(store) => store.listen().map(Subscription::Redis),
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => Some(Subscription::Simulated(store.listen())),
        }
    }

    /// Returns when another server has made the store anew in a way that does not fit: it must be opened again.
    pub async fn replaced(&self) {
        match self {
            Self::Redis(store) => store.replaced().await,
            _ => std::future::pending().await,
        }
    }
}

/// For a store that answers for all partitions or for none: the answer for each of `number`.
fn each_of<T>(number: usize, found: Result<Vec<T>, StoreError>) -> Vec<Result<T, StoreError>> {
    match found {
        Ok(found) => found.into_iter().map(Ok).collect(),
        Err(error) => vec![error; number].into_iter().map(Err).collect(),
    }
}
