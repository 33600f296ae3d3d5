//! Faults and losses that tests inject into a simulated store.

use std::sync::{MutexGuard, PoisonError};

use super::SimulatedStore;
use super::tables::SimulatedTables;
use crate::codec::StoreError;
use crate::model::{Partition, WorkflowId};
use crate::store::split_result;

/// The failure of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// The call succeeds.
    #[default]
    None,
    /// The call does nothing and fails.
    Refused,
    /// The write is done, but its outcome is reported as unknown. A read fails.
    AnswerLost,
    /// Nothing is written, and the outcome is reported as unknown. A read fails.
    RequestLost,
}

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A call that changes something.
    Write,
    /// A call that only reads.
    Read,
}

/// The failure and delays of a call, which a test injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InjectedFault {
    /// The failure of the call.
    pub fault: Fault,
    /// Number of yields to the runtime before the call is done: other calls may come first.
    pub before: u8,
    /// Number of yields before the caller gets the answer.
    pub after: u8,
}

impl From<Fault> for InjectedFault {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            ..Self::default()
        }
    }
}

/// The data that a store loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataLoss {
    /// Everything, like a store that was emptied.
    Everything,
    /// Everything of one workflow except its rows and its idempotency key.
    State(WorkflowId),
    /// The ready rows of a partition.
    Ready(Partition),
    /// The names of queues and workflows, with the paused queues, and the policies of queues and
    /// handlers.
    Registers,
}

/// The reason of all injected failures.
const INJECTED: &str = "injected fault";

pub(super) type Faults = Box<dyn FnMut(CallKind) -> InjectedFault + Send>;

impl SimulatedStore {
    /// Sets the function that decides the fault of each later call.
    pub fn inject<M: Into<InjectedFault>>(
        &self,
        mut faults: impl FnMut(CallKind) -> M + Send + 'static,
    ) {
        self.tables().faults = Some(Box::new(move |call| faults(call).into()));
    }

    /// Number of calls of the store.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.tables().calls
    }

    /// Loses data immediately.
    pub fn lose(&self, loss: DataLoss) {
        let mut tables = self.tables();
        match loss {
            DataLoss::Everything => {
                let faults = tables.faults.take();
                let calls = tables.calls;
                let losses = tables.losses + 1;
                let mut servers = std::mem::take(&mut tables.servers);
                servers.entries.clear();
                *tables = SimulatedTables {
                    faults,
                    calls,
                    losses,
                    servers,
                    ..SimulatedTables::default()
                };
            }
            DataLoss::State(id) => drop(tables.workflows.remove(&id)),
            DataLoss::Ready(partition) => tables.ready.retain(|(at, _)| *at != partition),
            DataLoss::Registers => {
                tables.queues.clear();
                tables.names.clear();
                tables.policies.clear();
                tables.losses += 1;
            }
        }
    }

    /// Loses the next `number` messages between servers.
    pub fn lose_messages(&self, number: u64) {
        self.tables().servers.lost = number;
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, SimulatedTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and waits as its fault demands.
    async fn begin(&self, call: CallKind) -> InjectedFault {
        let injected = {
            let mut tables = self.tables();
            tables.calls += 1;
            tables
                .faults
                .as_mut()
                .map_or_else(InjectedFault::default, |faults| faults(call))
        };
        yield_times(injected.before).await;
        injected
    }

    /// The tables for a read, unless a fault is injected.
    pub(super) async fn read(&self) -> Result<MutexGuard<'_, SimulatedTables>, StoreError> {
        match self.begin(CallKind::Read).await.fault {
            Fault::None => Ok(self.tables()),
            _ => Err(StoreError::Unavailable {
                reason: INJECTED.to_owned(),
            }),
        }
    }

    /// Reads a value for each of the queries, unless a fault is injected.
    pub(super) async fn read_each<A, T>(
        &self,
        queries: &[A],
        read: impl Fn(&SimulatedTables, &A) -> T,
    ) -> Vec<Result<T, StoreError>> {
        let found = self
            .read()
            .await
            .map(|tables| queries.iter().map(|one| read(&tables, one)).collect());
        split_result(queries.len(), found)
    }

    /// Writes, unless a fault is injected.
    pub(super) async fn write<T>(
        &self,
        write: impl FnOnce(&mut SimulatedTables) -> T,
    ) -> Result<T, StoreError> {
        let injected = self.begin(CallKind::Write).await;
        let reason = || INJECTED.to_owned();
        match injected.fault {
            Fault::Refused => return Err(StoreError::Unavailable { reason: reason() }),
            Fault::RequestLost => return Err(StoreError::Unknown { reason: reason() }),
            Fault::None | Fault::AnswerLost => {}
        }
        let written = write(&mut self.tables());
        yield_times(injected.after).await;
        match injected.fault {
            Fault::AnswerLost => Err(StoreError::Unknown { reason: reason() }),
            _ => Ok(written),
        }
    }
}

/// Yields to the runtime `number` times.
async fn yield_times(number: u8) {
    for _ in 0..number {
        tokio::task::yield_now().await;
    }
}
