//! Workflows in this process, for tests. Everything is lost when the process ends, and writes can be made to fail.

mod holders;
mod notes;
mod registers;
pub(super) mod servers;
mod tables;
mod terms;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use self::servers::Ears;
use self::tables::{Entry, Tables};
use super::announcement::{Announcer, ServerId};
use super::board::Board;
use super::ears::Topic;
use super::error::StoreError;
use super::lanes::{LaneRows, Walk, walk};
use super::probe::Probe;
use super::query::{Clockwork, Head, Order, RowSet, Span};
use super::{Roll, each_of};
use crate::id::{JobIndex, Partition, WorkflowId};
use crate::record::change::{Applied, Change, ResultField, Stored, StoredState};
use crate::record::due::due_row;
use crate::record::format::Format;
use crate::record::rows::Row;
use crate::time::Timestamp;

/// Workflows in this process. Clones share them.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    partitions: u16,
    tables: Arc<Mutex<Tables>>,
    pub(super) board: Board,
}

/// What a store that was told to fail does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Works.
    #[default]
    None,
    /// Does nothing and reports that.
    Refused,
    /// Writes, but reports an unknown outcome. A read is refused.
    AnswerLost,
    /// Writes nothing, and reports an unknown outcome. A read is refused.
    RequestLost,
}

/// What is asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// It changes something.
    Write,
    /// It only reads.
    Read,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mishap {
    /// How it fails, if it does.
    pub fault: Fault,
    /// So many turns of the runtime pass before the store does it: others may come first.
    pub before: u8,
    /// So many turns pass before the caller hears of it.
    pub after: u8,
}

impl From<Fault> for Mishap {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            ..Self::default()
        }
    }
}

/// What a store loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Everything, as a store that was emptied.
    Everything,
    /// All of one workflow but its rows and its key.
    State(WorkflowId),
    /// The ready rows of a partition.
    Ready(Partition),
    /// The names of queues and workflows, and with them which queues are paused; and the terms of queues and handlers.
    Registers,
}

/// The reason of all failures.
const TOLD: &str = "told to fail";

type Faults = Box<dyn FnMut(Call) -> Mishap + Send>;

impl MemoryStore {
    /// An empty store of `partitions` partitions.
    #[must_use]
    pub fn new(partitions: u16) -> Self {
        Self {
            partitions,
            tables: Arc::default(),
            board: Board::default(),
        }
    }

    /// From now on asks `faults` what to do with each call.
    pub fn inject<M: Into<Mishap>>(&self, mut faults: impl FnMut(Call) -> M + Send + 'static) {
        self.tables().faults = Some(Box::new(move |call| faults(call).into()));
    }

    /// How often the store was called.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.tables().calls
    }

    /// Loses something, now.
    pub fn lose(&self, loss: Loss) {
        let mut tables = self.tables();
        match loss {
            Loss::Everything => {
                let (faults, calls, losses) =
                    (tables.faults.take(), tables.calls, tables.losses + 1);
                let mut servers = std::mem::take(&mut tables.servers);
                servers.entries.clear();
                *tables = Tables {
                    faults,
                    calls,
                    losses,
                    servers,
                    ..Tables::default()
                };
            }
            Loss::State(id) => drop(tables.workflows.remove(&id)),
            Loss::Ready(partition) => tables.ready.retain(|(at, _)| *at != partition),
            Loss::Registers => {
                tables.queues.clear();
                tables.names.clear();
                tables.terms.clear();
                tables.losses += 1;
            }
        }
    }

    /// Loses so many of the next messages that servers send each other.
    pub fn lose_messages(&self, number: u64) {
        self.tables().servers.lost = number;
    }

    pub(crate) async fn servers(
        &self,
        own: Option<(ServerId, &str)>,
        gone: &[ServerId],
    ) -> Result<Roll, StoreError> {
        let mut anew = false;
        if let Some((server, entry)) = own {
            // As in Redis, others are read also where nothing can be written.
            let written = self
                .write(|tables| tables.servers.entries.insert(server, entry.to_owned()))
                .await;
            anew = written == Ok(None);
        }
        let mut tables = self.read().await?;
        tables
            .servers
            .entries
            .retain(|server, _| !gone.contains(server));
        let entries = tables
            .servers
            .entries
            .iter()
            .map(|(server, entry)| (server.to_string(), entry.clone()));
        Ok(Roll {
            entries: entries.collect(),
            time: None,
            anew,
        })
    }

    pub(crate) fn tell(&self, topic: Topic, message: &[u8]) {
        self.tables().servers.tell(topic, message);
    }

    pub(crate) fn listen(&self) -> Ears {
        self.tables().servers.listen()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and lets happen to it what should come before.
    async fn begin(&self, call: Call) -> Mishap {
        let mishap = {
            let mut tables = self.tables();
            tables.calls += 1;
            tables
                .faults
                .as_mut()
                .map_or_else(Mishap::default, |faults| faults(call))
        };
        turns(mishap.before).await;
        mishap
    }

    /// The tables, to be read.
    async fn read(&self) -> Result<MutexGuard<'_, Tables>, StoreError> {
        match self.begin(Call::Read).await.fault {
            Fault::None => Ok(self.tables()),
            _ => Err(StoreError::Unavailable {
                reason: TOLD.to_owned(),
            }),
        }
    }

    /// Reads something for each of what is asked for, if it should work.
    async fn each<A, T>(
        &self,
        asked: &[A],
        read: impl Fn(&Tables, &A) -> T,
    ) -> Vec<Result<T, StoreError>> {
        let found = self
            .read()
            .await
            .map(|tables| asked.iter().map(|one| read(&tables, one)).collect());
        each_of(asked.len(), found)
    }

    /// Writes, if it should work.
    async fn write<T>(&self, write: impl FnOnce(&mut Tables) -> T) -> Result<T, StoreError> {
        let mishap = self.begin(Call::Write).await;
        let reason = || TOLD.to_owned();
        match mishap.fault {
            Fault::Refused => return Err(StoreError::Unavailable { reason: reason() }),
            Fault::RequestLost => return Err(StoreError::Unknown { reason: reason() }),
            Fault::None | Fault::AnswerLost => {}
        }
        let written = write(&mut self.tables());
        turns(mishap.after).await;
        match mishap.fault {
            Fault::AnswerLost => Err(StoreError::Unknown { reason: reason() }),
            _ => Ok(written),
        }
    }

    pub(crate) fn partitions(&self) -> u16 {
        self.partitions
    }

    pub(crate) fn format(&self) -> Format {
        Format::LATEST
    }

    pub(crate) async fn apply(
        &self,
        partition: Partition,
        changes: &[Change],
        announcer: Option<&Announcer>,
    ) -> Result<Vec<Applied>, StoreError> {
        let announcement = announcer.and_then(|announcer| announcer.of(partition, changes));
        self.write(|tables| {
            let applied = changes
                .iter()
                .map(|change| tables.apply(partition, change))
                .collect();
            tables.servers.announce(partition, announcement);
            applied
        })
        .await
    }

    pub(crate) async fn probe(&self, _: Partition) -> Probe {
        let reads = self.read().await.map(drop);
        let writes = self.write(|_| ()).await;
        Probe {
            reads,
            removals: writes.clone(),
            writes,
        }
    }

    pub(crate) async fn load(&self, ids: &[WorkflowId]) -> Result<Vec<Option<Stored>>, StoreError> {
        let tables = self.read().await?;
        let stored = |entry: &Entry| Stored {
            graph: entry.birth.graph.clone(),
            state: entry.state(),
        };
        Ok(ids
            .iter()
            .map(|id| tables.workflows.get(id).map(stored))
            .collect())
    }

    pub(crate) async fn excerpts(
        &self,
        wanted: &[(WorkflowId, Vec<JobIndex>)],
    ) -> Vec<Result<Option<StoredState>, StoreError>> {
        let some = |entry: &Entry, jobs: &[JobIndex]| {
            let found = jobs
                .iter()
                .filter_map(|job| Some((*job, entry.jobs.get(job)?.clone())));
            StoredState {
                meta: entry.meta.clone(),
                jobs: found.collect(),
                ..StoredState::default()
            }
        };
        self.each(wanted, |tables, (id, jobs)| {
            tables.workflows.get(id).map(|entry| some(entry, jobs))
        })
        .await
    }

    pub(crate) async fn graph(&self, id: WorkflowId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self
            .read()
            .await?
            .workflows
            .get(&id)
            .map(|entry| entry.birth.graph.clone()))
    }

    pub(crate) async fn sizes(&self, ids: &[WorkflowId]) -> Result<Vec<u64>, StoreError> {
        let tables = self.read().await?;
        let size = |id| {
            tables
                .workflows
                .get(id)
                .map_or(0, |entry| entry.birth.graph.len() as u64)
        };
        Ok(ids.iter().map(size).collect())
    }

    pub(crate) async fn heads(&self, ids: &[WorkflowId]) -> Vec<Result<Option<Head>, StoreError>> {
        let head = |entry: &Entry| Head {
            meta: entry.meta.clone(),
            label: entry.birth.label.clone(),
        };
        self.each(ids, |tables, id| tables.workflows.get(id).map(head))
            .await
    }

    pub(crate) async fn results(
        &self,
        wanted: &[(WorkflowId, Vec<ResultField>)],
    ) -> Result<Vec<Vec<Option<Bytes>>>, StoreError> {
        let tables = self.read().await?;
        let of = |(id, fields): &(WorkflowId, Vec<ResultField>)| {
            let entry = tables.workflows.get(id);
            fields
                .iter()
                .map(|field| entry.and_then(|entry| entry.results.get(field).cloned()))
                .collect()
        };
        Ok(wanted.iter().map(of).collect())
    }

    pub(crate) async fn ready(
        &self,
        prefixes: &[Row],
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<Vec<Row>>, StoreError>> {
        let ready = |tables: &Tables, &at: &Partition| {
            let rows = |prefix| tables.ready_with(at, prefix).take(limit).cloned().collect();
            prefixes.iter().map(|prefix: &Row| rows(prefix)).collect()
        };
        self.each(partitions, ready).await
    }

    pub(crate) async fn lanes(
        &self,
        wanted: &[(Partition, Vec<Walk>)],
        each: usize,
        lanes: usize,
    ) -> Vec<Result<Vec<LaneRows>, StoreError>> {
        let partitions: Vec<Partition> = wanted.iter().map(|(at, _)| *at).collect();
        let walks = |tables: &Tables, at: &Partition| {
            let of = wanted
                .iter()
                .filter(|(partition, _)| partition == at)
                .flat_map(|(_, walks)| walks);
            let read = |from: &Row, to: &Row, limit: usize| {
                Ok::<_, Infallible>(
                    tables
                        .ready_from(*at, from, to)
                        .take(limit)
                        .cloned()
                        .collect(),
                )
            };
            let walk = |each_walk| match walk(each_walk, each, lanes, read) {
                Ok(found) => found,
                Err(never) => match never {},
            };
            of.map(walk).collect()
        };
        self.each(&partitions, walks).await
    }

    pub(crate) async fn due(
        &self,
        which: Clockwork,
        until: Timestamp,
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(WorkflowId, Timestamp)>, StoreError>> {
        let due = |tables: &Tables, &partition: &Partition| {
            let due = tables
                .due_of(which, partition)
                .take_while(move |(at, _)| *at <= until);
            due.take(limit).map(|&(at, id)| (id, at)).collect()
        };
        self.each(partitions, due).await
    }

    pub(crate) async fn page(
        &self,
        spans: &[(Partition, Span)],
        order: Order,
        limit: usize,
    ) -> Vec<Result<Vec<WorkflowId>, StoreError>> {
        let page = |tables: &Tables, (partition, span): &(Partition, Span)| {
            let rows = tables.span(*partition, span);
            let id = |(_, row): &(Partition, Row)| {
                crate::record::rows::workflow_of(row).expect("an index row ends in an id")
            };
            match order {
                Order::OldestFirst => rows.take(limit).map(id).collect(),
                Order::NewestFirst => rows.rev().take(limit).map(id).collect(),
            }
        };
        self.each(spans, page).await
    }

    pub(crate) async fn count(
        &self,
        spans: &[Span],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<u64>, StoreError>> {
        let count = |tables: &Tables, &at: &Partition| {
            spans
                .iter()
                .map(|span| tables.span(at, span).count() as u64)
                .collect()
        };
        self.each(partitions, count).await
    }

    pub(crate) async fn ready_depth(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(u64, Option<Row>)>, StoreError>> {
        let depth = |tables: &Tables, &at: &Partition| {
            let rows = |prefix| tables.ready_with(at, prefix);
            prefixes
                .iter()
                .map(|prefix| (rows(prefix).count() as u64, rows(prefix).next().cloned()))
                .collect()
        };
        self.each(partitions, depth).await
    }

    pub(crate) async fn keyed(
        &self,
        partition: Partition,
        key: &str,
    ) -> Result<Option<WorkflowId>, StoreError> {
        Ok(self
            .read()
            .await?
            .keys
            .get(&(partition, key.to_owned()))
            .copied())
    }

    pub(crate) async fn rows(
        &self,
        partition: Partition,
        set: RowSet,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let tables = self.read().await?;
        let of = |rows: &BTreeSet<(Partition, Row)>| -> Vec<Row> {
            let rows = rows
                .iter()
                .filter(|(at, _)| *at == partition)
                .map(|(_, row)| row);
            rows.filter(|row| after.is_none_or(|after| row.as_slice() > after))
                .take(limit)
                .cloned()
                .collect()
        };
        Ok(match set {
            RowSet::Ready => of(&tables.ready),
            RowSet::Index => of(&tables.index),
            RowSet::Due(which) => {
                let rows = tables
                    .due_of(which, partition)
                    .map(|&(at, id)| due_row(at, id));
                rows.filter(|row| after.is_none_or(|after| row.as_slice() > after))
                    .take(limit)
                    .collect()
            }
        })
    }

    pub(crate) async fn states(&self, partition: Partition) -> Result<Vec<WorkflowId>, StoreError> {
        let tables = self.read().await?;
        Ok(tables
            .workflows
            .keys()
            .copied()
            .filter(|id| id.partition() == partition)
            .collect())
    }
}

/// Lets others go first, so many times.
async fn turns(number: u8) {
    for _ in 0..number {
        tokio::task::yield_now().await;
    }
}
