//! Stores of workflows: Redis, SQLite and, for tests, a simulated one. A store applies changes and
//! answers reads. It does not know the rules behind a change.

/// Runs one expression for whichever store is open. It stands before the modules, because they use
/// it too.
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

/// Declares methods that every store has.
macro_rules! for_each_store {
    ($($(#[$doc:meta])* $public:vis async fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)+) => {
        $(
            $(#[$doc])*
            $public async fn $name(&self, $($argument: $type),*) -> $result {
                each_store!(self, store => store.$name($($argument),*).await)
            }
        )+
    };
}

/// Runs one expression for whichever store is open. Its result is an answer for each of `number`
/// items in Redis, and one answer for all of them in the other stores.
macro_rules! each_answer {
    ($self:ident, $number:expr, $store:ident => $call:expr) => {
        match $self {
            #[cfg(feature = "test-util")]
            Store::Simulated($store) => $crate::store::split_result($number, $call),
            Store::Sqlite($store) => $crate::store::split_result($number, $call),
            Store::Redis($store) => $call,
        }
    };
}

mod change_notice;
mod migration;
mod notes;
mod permits;
pub(crate) mod query;
pub(crate) mod redis;
mod register;
mod shared_table;
#[cfg(feature = "test-util")]
mod simulated;
mod sqlite;
mod subscription;

pub use crate::codec::{SCHEMA_VERSION, StoreError};
pub use change_notice::ServerId;
pub(crate) use change_notice::{ChangeNotice, Notifier, ReadyQueues, parse_queue_or_lane};
pub use migration::{OutdatedWorkflows, RewriteResult};
pub use notes::{JobLog, JobNote, NoteOutcome};
pub use permits::{PermitExtension, PermitGrant, PermitHolders, PermitRequest};
pub use query::{EncodedSummary, HeartbeatQuery, Order, Register, RowRange, RowSet, TimeIndex};
pub use redis::{RedisOptions, RedisOptionsError, RedisStore};
pub(crate) use register::{RegisteredName, Verification};
pub use shared_table::SharedTable;
#[cfg(feature = "test-util")]
pub use simulated::{CallKind, DataLoss, Fault, InjectedFault, SimulatedStore};
pub use sqlite::{FileSpace, SqliteOptions, SqliteOptionsError, SqliteStore};
pub(crate) use subscription::{Broadcast, StoreEvent, Subscription, Topic};

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::query::probe::Probe;
use self::redis::durability::Durability;
use crate::codec::{
    Applied, Change, Format, NewerState, ResultField, Row, Stamp, Stored, StoredState,
};
use crate::machine::WriteOptions;
use crate::model::{JobIndex, Partition, Timestamp, WorkflowId};
use notes::{EncodedNote, FULL_CHUNK_BYTES, LOG_SLOTS, MAX_LOG_BYTES};
use permits::{PermitCount, permit_duration};

use register::PAUSED;
use shared_table::SharedTables;

/// The servers that use one store, as a heartbeat reads them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HeartbeatReply {
    /// Name and encoded description of each server.
    pub(crate) entries: Vec<(String, String)>,
    /// The time of the store, which all servers follow. `None` if it was not requested or cannot be
    /// read.
    pub(crate) time: Option<Timestamp>,
    /// Whether this heartbeat created the record of its server.
    pub(crate) is_new: bool,
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
    /// The store for another thread. In Redis it has its own connections.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, because the new connections belong to the current one.
    #[must_use]
    pub fn for_new_thread(&self) -> Self {
        match self {
            Self::Redis(store) => Self::Redis(store.for_new_thread()),
            other => other.clone(),
        }
    }

    /// The number of partitions, which is fixed when a store is created.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        each_store!(self, store => store.partitions())
    }

    /// The format in which records are written.
    #[must_use]
    pub fn format(&self) -> Format {
        each_store!(self, store => store.format())
    }

    /// The options by which write sets for this store are built.
    pub(crate) fn write_options(&self) -> WriteOptions {
        let max_inline = if let Self::Redis(_) = self {
            redis::MAX_INLINE
        } else {
            usize::MAX
        };
        WriteOptions {
            format: self.format(),
            max_inline,
        }
    }

    /// The largest number of requests of one group commit: they share the cost of a write, and the
    /// first request does not wait long for the last one.
    pub(crate) fn max_batch(&self) -> usize {
        match self {
            // A write is a sync of the disk, and one call may create a thousand workflows in a few
            // partitions.
            Self::Sqlite(_) => sqlite::GROUP_CHANGES,
            _ => 256,
        }
    }

    /// Whether a migration has begun and not ended. A server notices a migration of another process
    /// when it verifies the store.
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

    /// Applies changes of one partition independently of each other. The outcomes have the order of
    /// the changes.
    ///
    /// # Errors
    /// No change was applied. With [`StoreError::Unknown`] and [`StoreError::PartialWrite`], any of
    /// them may have been. After a partial write, the rows of changes that were not applied may
    /// exist or be missing.
    ///
    /// # Cancellation
    /// When the future is dropped, any change may have been applied.
    pub async fn apply(
        &self,
        partition: Partition,
        changes: &[Change],
    ) -> Result<Vec<Applied>, StoreError> {
        self.apply_and_notify(partition, &changes.into(), None)
            .await
    }

    /// Applies changes as [`Store::apply`] does and sends the change notices of `notifier` to other
    /// servers.
    pub(crate) async fn apply_and_notify(
        &self,
        partition: Partition,
        changes: &Arc<[Change]>,
        notifier: Option<&Notifier>,
    ) -> Result<Vec<Applied>, StoreError> {
        match self {
            Self::Sqlite(store) => store.apply(partition, Arc::clone(changes)).await,
            Self::Redis(store) => store.apply(partition, changes, notifier).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.apply(partition, changes, notifier).await,
        }
    }

    for_each_store! {
        /// Checks whether the store serves a partition. It changes nothing, and in Redis it takes
        /// at most a second.
        pub async fn probe(partition: Partition) -> Probe;

        /// Reads workflows. `None` for a workflow that does not exist.
        pub async fn load(ids: &[WorkflowId]) -> Result<Vec<Option<Stored>>, StoreError>;

        /// Reads excerpts of several workflows, each at its own moment. The state of a small
        /// workflow is returned whole.
        pub(crate) async fn excerpts(
            wanted: &[(WorkflowId, Vec<JobIndex>)],
        ) -> Vec<Result<Option<StoredState>, StoreError>>;

        /// The encoded graphs of workflows. `None` for a workflow that does not exist.
        pub async fn graphs(ids: &[WorkflowId]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

        /// The sizes of graphs in bytes, which are most of what `Store::load_each` reads. 0 for a
        /// workflow that does not exist.
        pub async fn sizes(ids: &[WorkflowId]) -> Result<Vec<u64>, StoreError>;

        /// Reads the summaries of workflows that lists show. `None` for a workflow that does not
        /// exist.
        pub async fn summaries(
            ids: &[WorkflowId],
        ) -> Vec<Result<Option<EncodedSummary>, StoreError>>;

        /// Reads results of workflows. Each answer is as long as the list of fields that was
        /// requested.
        pub async fn results(
            wanted: &[(WorkflowId, Vec<ResultField>)],
        ) -> Result<Vec<Vec<Option<Bytes>>>, StoreError>;

        /// For each partition and each prefix, at most `limit` ready rows that begin with the
        /// prefix, lowest first.
        pub async fn ready(
            prefixes: &[Row],
            limit: usize,
            partitions: &[Partition],
        ) -> Vec<Result<Vec<Vec<Row>>, StoreError>>;

        /// For each partition, at most `limit` workflows that are due at `until` or earlier, sorted
        /// by time.
        pub async fn due(
            which: TimeIndex,
            until: Timestamp,
            limit: usize,
            partitions: &[Partition],
        ) -> Vec<Result<Vec<(WorkflowId, Timestamp)>, StoreError>>;

        /// At most `limit` ids of each range of a partition, in order.
        pub async fn page(
            ranges: &[(Partition, RowRange)],
            order: Order,
            limit: usize,
        ) -> Vec<Result<Vec<WorkflowId>, StoreError>>;

        /// For each partition, the number of rows of each range.
        pub async fn count(
            ranges: &[RowRange],
            partitions: &[Partition],
        ) -> Vec<Result<Vec<u64>, StoreError>>;

        /// For each partition and each prefix, the number of ready rows and the first of them. A
        /// prefix is that of a queue, or of a lane with limits.
        pub async fn ready_depth(
            prefixes: &[Row],
            partitions: &[Partition],
        ) -> Vec<Result<Vec<(u64, Option<Row>)>, StoreError>>;

        /// The workflow that has an idempotency key. The key decides the partition.
        pub async fn workflow_by_key(
            partition: Partition,
            key: &str,
        ) -> Result<Option<WorkflowId>, StoreError>;

        /// At most `limit` rows of a set that follow `after`, ascending by their bytes.
        pub async fn rows(
            partition: Partition,
            set: RowSet,
            after: Option<&[u8]>,
            limit: usize,
        ) -> Result<Vec<Row>, StoreError>;
    }

    /// Reads the meta of a workflow and the existing records of the given jobs at one moment.
    /// `None` if the workflow does not exist.
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

    /// The changes of a workflow of `jobs` jobs after the write `since`. `None` if the store does
    /// not know them or the workflow does not exist.
    pub(crate) async fn newer_state(
        &self,
        id: WorkflowId,
        jobs: usize,
        since: Stamp,
    ) -> Result<Option<NewerState>, StoreError> {
        match self {
            Self::Redis(store) => store.newer_state(id, jobs, since).await,
            _ => Ok(None),
        }
    }

    /// Scans the workflows of a partition that have a state, whatever rows they have. Returns some
    /// of them and the cursor of the next call; 0 begins the scan and ends it.
    ///
    /// A workflow may be returned twice. The scan reads all keys or rows of the store. `None` if
    /// Redis forbids SCAN.
    pub async fn scan_states(
        &self,
        partition: Partition,
        cursor: u64,
    ) -> Result<Option<(u64, Vec<WorkflowId>)>, StoreError> {
        match self {
            Self::Sqlite(store) => Ok(Some((0, store.scan_states(partition).await?))),
            Self::Redis(store) => store.scan_states(partition, cursor).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => Ok(Some((0, store.scan_states(partition).await?))),
        }
    }

    /// How the Redis nodes of the store persist their data. Empty for other stores, and if no node
    /// reports it.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn durability(&self) -> Result<Durability, StoreError> {
        match self {
            Self::Redis(store) => store.durability().await,
            _ => Ok(Durability::default()),
        }
    }

    /// Whether workflows of one partition still have the given states (the bytes of their metas),
    /// and all earlier writes are as safe as acknowledged ones. Returns true without a query where
    /// one disk or one Redis is enough.
    ///
    /// # Errors
    /// The store did not answer, so that neither is known.
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

    /// Whether a write is acknowledged only after replicas have it.
    pub(crate) fn waits_for_replicas(&self) -> bool {
        matches!(self, Self::Redis(store) if store.replicas() > 0)
    }

    /// The time of the store, which all of its servers follow. `None` if there is only one server,
    /// whose own clock counts.
    ///
    /// # Errors
    /// Redis does not answer, or does not allow TIME.
    pub async fn time(&self) -> Result<Option<Timestamp>, StoreError> {
        match self {
            Self::Redis(store) => store.time().await.map(Some),
            _ => Ok(None),
        }
    }

    /// Writes the heartbeat of a server, removes the records of the servers in `gone`, and reads
    /// all records. `None` if only one server can use the store.
    ///
    /// # Errors
    /// The servers cannot be read.
    pub(crate) async fn heartbeat(
        &self,
        own: Option<(ServerId, &str)>,
        gone: &[ServerId],
        query: HeartbeatQuery,
    ) -> Result<Option<HeartbeatReply>, StoreError> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Redis(store) => store.heartbeat(own, gone, query).await.map(Some),
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.heartbeat(own, gone).await.map(Some),
        }
    }

    /// Publishes a message to all servers that subscribed to [`subscription::Topic::Servers`]. It
    /// may get lost.
    pub(crate) async fn broadcast(&self, by: ServerId, message: Broadcast) {
        match self {
            Self::Sqlite(_) => {}
            Self::Redis(store) => store.publish(&message.write(by)).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => {
                store.publish(subscription::Topic::Servers, &message.write(by))
            }
        }
    }

    /// Returns when this server may publish messages, if `allowed` is true, or when it may not, if
    /// it is false. Probes Redis at intervals of `interval`. Never returns for a store without
    /// Redis.
    pub(crate) async fn publish_changed(&self, allowed: bool, interval: &impl Fn() -> Duration) {
        match self {
            Self::Redis(store) => store.publish_changed(allowed, interval).await,
            _ => std::future::pending().await,
        }
    }

    /// Subscribes to messages of other servers. `None` if there are no other servers, or Redis does
    /// not allow it now.
    pub(crate) fn subscribe(&self) -> Option<Subscription> {
        match self {
            Self::Sqlite(_) => None,
            Self::Redis(store) => store.subscribe().map(Subscription::Redis),
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => Some(Subscription::Simulated(store.subscribe())),
        }
    }

    /// Returns when another server has created the store anew with other partitions or another
    /// schema: this process must open it again.
    pub async fn replaced(&self) {
        match self {
            Self::Redis(store) => store.replaced().await,
            _ => std::future::pending().await,
        }
    }
}

/// Turns the answer of a store that serves all partitions or none into one answer for each of
/// `number` items.
fn split_result<T>(
    number: usize,
    result: Result<Vec<T>, StoreError>,
) -> Vec<Result<T, StoreError>> {
    match result {
        Ok(result) => result.into_iter().map(Ok).collect(),
        Err(error) => vec![error; number].into_iter().map(Err).collect(),
    }
}
