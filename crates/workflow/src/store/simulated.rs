//! A store for tests, in the memory of this process. Several engines can share it. Calls fail, are
//! delayed or lose data as the test decides.

mod faults;
mod notes;
mod permits;
mod policies;
mod reads;
mod registers;
pub(crate) mod servers;
mod tables;

use std::sync::{Arc, Mutex};

pub use self::faults::{CallKind, DataLoss, Fault, InjectedFault};
use self::servers::SimulatedSubscription;
use self::tables::SimulatedTables;
use super::query::probe::Probe;
use super::{HeartbeatReply, Notifier, ServerId, SharedTables, StoreError, Topic};
use crate::codec::{Applied, Change, Format};
use crate::model::Partition;

/// Workflows in the memory of this process. Clones share them. They are lost when the last clone is
/// dropped.
#[derive(Debug, Clone)]
pub struct SimulatedStore {
    partitions: u16,
    tables: Arc<Mutex<SimulatedTables>>,
    pub(super) shared_tables: SharedTables,
}

impl SimulatedStore {
    /// An empty store of `partitions` partitions.
    #[must_use]
    pub fn new(partitions: u16) -> Self {
        Self {
            partitions,
            tables: Arc::default(),
            shared_tables: SharedTables::default(),
        }
    }

    pub(crate) async fn heartbeat(
        &self,
        own: Option<(ServerId, &str)>,
        gone: &[ServerId],
    ) -> Result<HeartbeatReply, StoreError> {
        let mut is_new = false;
        if let Some((server, entry)) = own {
            // As in Redis, records are read even if a write fails.
            let written = self
                .write(|tables| tables.servers.entries.insert(server, entry.to_owned()))
                .await;
            is_new = written == Ok(None);
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
        Ok(HeartbeatReply {
            entries: entries.collect(),
            time: None,
            is_new,
        })
    }

    pub(crate) fn publish(&self, topic: Topic, message: &[u8]) {
        self.tables().servers.publish(topic, message);
    }

    pub(crate) fn subscribe(&self) -> SimulatedSubscription {
        self.tables().servers.subscribe()
    }

    pub(crate) fn partitions(&self) -> u16 {
        self.partitions
    }

    pub(crate) async fn begin_migration(&self) -> Result<(), StoreError> {
        Ok(())
    }

    pub(crate) async fn end_migration(&self) -> Result<(), StoreError> {
        Ok(())
    }

    pub(crate) fn format(&self) -> Format {
        Format::LATEST
    }

    pub(crate) async fn apply(
        &self,
        partition: Partition,
        changes: &[Change],
        notifier: Option<&Notifier>,
    ) -> Result<Vec<Applied>, StoreError> {
        let notice = notifier.and_then(|notifier| notifier.notice_for(partition, changes));
        self.write(|tables| {
            let applied = changes
                .iter()
                .map(|change| tables.apply(partition, change))
                .collect();
            tables.servers.announce(partition, notice);
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
}
