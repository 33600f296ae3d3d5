//! Where workflows live. A store applies changes and reads; it knows nothing of what a change means.

mod memory;
mod redis;
mod sqlite;

use bytes::Bytes;
use thiserror::Error;

pub use memory::{Fault, MemoryStore};
pub use redis::{RedisOptions, RedisOptionsError, RedisStore};
pub use sqlite::{SqliteOptions, SqliteOptionsError, SqliteStore};

use crate::id::{Partition, WorkflowId};
use crate::record::change::{Applied, Change, ResultField, Stored};
use crate::record::rows::Row;
use crate::time::Timestamp;

/// The version of the layout that this code writes.
pub const SCHEMA_VERSION: u32 = 1;

/// Where workflows live.
#[derive(Debug, Clone)]
pub enum Store {
    /// In this process: for tests.
    Memory(MemoryStore),
    /// In one SQLite file.
    Sqlite(SqliteStore),
    /// In Redis.
    Redis(RedisStore),
}

/// Why a store did not do as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Nothing was written; later it may work.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What the store says.
        reason: String,
    },
    /// It may or may not have been written.
    #[error("the store did not answer: {reason}")]
    Unknown {
        /// What is known.
        reason: String,
    },
    /// What is stored cannot be read.
    #[error("{what} in the store cannot be read: {reason}")]
    Corrupt {
        /// Which entry.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store was made by another version.
    #[error("the store has schema version {found}, this program knows {SCHEMA_VERSION}: {advice}")]
    Schema {
        /// The version found.
        found: u32,
        /// What to do.
        advice: &'static str,
    },
}

impl StoreError {
    /// The store has another schema than this program's.
    pub(crate) fn other_schema(found: u32) -> Self {
        let advice = match found < SCHEMA_VERSION {
            true => "run `tidegate store migrate`",
            false => "run the version of tidegate that made it, or a later one",
        };
        Self::Schema { found, advice }
    }
}

/// In which direction rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The newest workflows first.
    #[default]
    NewestFirst,
    /// The oldest first.
    OldestFirst,
}

/// A run of index rows: those that begin with `prefix` and go on with an id in `from..to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// See [`crate::record::rows::Section`].
    pub prefix: Row,
    /// The first id; inclusive. None is the first there is.
    pub from: Option<WorkflowId>,
    /// Where it ends; exclusive. None is after the last.
    pub to: Option<WorkflowId>,
}

impl Span {
    /// The rows of a whole section.
    #[must_use]
    pub fn of(prefix: Row) -> Self {
        Self { prefix, from: None, to: None }
    }

    /// The first row, inclusive.
    #[must_use]
    pub fn start(&self) -> Row {
        let mut row = self.prefix.clone();
        row.extend(self.from.iter().flat_map(WorkflowId::bytes));
        row
    }

    /// Where it ends, exclusive. No row is a prefix followed by an id and something more, so this is exact.
    #[must_use]
    pub fn end(&self) -> Row {
        let mut row = self.prefix.clone();
        match &self.to {
            Some(id) => row.extend(id.bytes()),
            None => row.extend([u8::MAX; 17]),
        }
        row
    }
}

/// What a list shows of a workflow, still encoded: meta and label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// See [`crate::Meta`].
    pub meta: Vec<u8>,
    /// See [`crate::Label`].
    pub label: Vec<u8>,
}

/// Which of a partition's two sets ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clockwork {
    /// Workflows that want to be looked at.
    Timers,
    /// Workflows that are over, by the time they are removed.
    Expiries,
}

/// A set of rows of a partition, as `store check` reads it: all of it, in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSet {
    /// Ready rows.
    Ready,
    /// Index rows.
    Index,
    /// Timers or expiries; their rows are made by [`due_row`].
    Due(Clockwork),
}

/// A row of a set ordered by time: eight bytes of microseconds, most significant first, and the id.
#[must_use]
pub fn due_row(at: Timestamp, id: WorkflowId) -> Row {
    [at.micros().to_be_bytes().as_slice(), id.bytes()].concat()
}

/// What [`due_row`] was made of.
#[must_use]
pub fn read_due_row(row: &[u8]) -> Option<(Timestamp, WorkflowId)> {
    let (at, id) = row.split_first_chunk()?;
    Some((Timestamp::from_micros(u64::from_be_bytes(*at)), WorkflowId::from_bytes(id.try_into().ok()?)))
}

/// Small facts that every server of a store shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// Names of queues, each with `paused` or nothing as its value.
    Queues,
    /// Names of workflows, each with nothing as its value.
    Names,
}

macro_rules! each_store {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Store::Memory($store) => $call,
            Store::Sqlite($store) => $call,
            Store::Redis($store) => $call,
        }
    };
}

impl Store {
    /// The number of partitions, fixed when the store was made.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        each_store!(self, store => store.partitions())
    }

    /// Applies changes of one partition, each for itself, and says what became of each, in their order.
    ///
    /// # Errors
    /// None of them was applied, or, with [`StoreError::Unknown`], any of them may have been.
    ///
    /// # Cancellation
    /// When the future is dropped, any of them may have been applied.
    pub async fn apply(&self, partition: Partition, changes: &[Change]) -> Result<Vec<Applied>, StoreError> {
        each_store!(self, store => store.apply(partition, changes).await)
    }

    /// Reads workflows; None for one that is not there.
    pub async fn load(&self, ids: &[WorkflowId]) -> Result<Vec<Option<Stored>>, StoreError> {
        each_store!(self, store => store.load(ids).await)
    }

    /// Reads what lists show; None for a workflow that is not there.
    pub async fn heads(&self, ids: &[WorkflowId]) -> Result<Vec<Option<Head>>, StoreError> {
        each_store!(self, store => store.heads(ids).await)
    }

    /// Reads results of workflows: for each a list as long as its list of fields.
    pub async fn results(
        &self,
        wanted: &[(WorkflowId, Vec<ResultField>)],
    ) -> Result<Vec<Vec<Option<Bytes>>>, StoreError> {
        each_store!(self, store => store.results(wanted).await)
    }

    /// For each prefix the ready rows that begin with it, by partition: at most `limit` of each, lowest first.
    pub async fn ready(&self, prefixes: &[Row], limit: usize) -> Result<Vec<Vec<Vec<Row>>>, StoreError> {
        each_store!(self, store => store.ready(prefixes, limit).await)
    }

    /// At most `limit` workflows of each partition whose moment is `until` or earlier; of each partition its earliest, earliest
    /// first.
    pub async fn due(
        &self,
        which: Clockwork,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(WorkflowId, Timestamp)>, StoreError> {
        each_store!(self, store => store.due(which, until, limit).await)
    }

    /// At most `limit` ids of each (partition, span), in order.
    pub async fn page(
        &self,
        spans: &[(Partition, Span)],
        order: Order,
        limit: usize,
    ) -> Result<Vec<Vec<WorkflowId>>, StoreError> {
        each_store!(self, store => store.page(spans, order, limit).await)
    }

    /// How many rows each span has, over all partitions.
    pub async fn count(&self, spans: &[Span]) -> Result<Vec<u64>, StoreError> {
        each_store!(self, store => store.count(spans).await)
    }

    /// How many ready rows begin with each prefix, over all partitions, and the first row of each partition that has one.
    pub async fn ready_depth(&self, prefixes: &[Row]) -> Result<Vec<(u64, Vec<Row>)>, StoreError> {
        each_store!(self, store => store.ready_depth(prefixes).await)
    }

    /// The workflow that has an idempotency key, which decides the partition.
    pub async fn keyed(&self, partition: Partition, key: &str) -> Result<Option<WorkflowId>, StoreError> {
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

    /// All entries of a register, by name.
    pub async fn register(&self, register: Register) -> Result<Vec<(String, String)>, StoreError> {
        each_store!(self, store => store.register(register).await)
    }

    /// Puts one entry of a register; with None removes it.
    pub async fn enter(&self, register: Register, name: &str, value: Option<&str>) -> Result<(), StoreError> {
        each_store!(self, store => store.enter(register, name, value).await)
    }
}
