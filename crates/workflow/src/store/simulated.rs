//! A store for tests, in the memory of this process. Several engines can share it. Calls fail, are
//! delayed or lose data as the test decides.

mod faults;
mod holders;
mod notes;
mod reads;
mod registers;
pub(super) mod servers;
mod tables;
mod terms;

use std::sync::{Arc, Mutex};

pub use self::faults::{Call, DataLoss, Fault, InjectedFault};
use self::servers::Ears;
use self::tables::Tables;
use super::Roll;
use super::change_notice::{Notifier, ServerId};
use super::error::StoreError;
use super::probe::Probe;
use super::shared_table::SharedTables;
use super::subscription::Topic;
use crate::codec::change::{Applied, Change};
use crate::codec::format::Format;
use crate::id::Partition;

/// Workflows in the memory of this process. Clones share them. They are lost when the last clone is
/// dropped.
#[derive(Debug, Clone)]
pub struct SimulatedStore {
    partitions: u16,
    tables: Arc<Mutex<Tables>>,
    pub(super) board: SharedTables,
}

impl SimulatedStore {
    /// An empty store of `partitions` partitions.
    #[must_use]
    pub fn new(partitions: u16) -> Self {
        Self {
            partitions,
            tables: Arc::default(),
            board: SharedTables::default(),
        }
    }

    pub(crate) async fn servers(
        &self,
        own: Option<(ServerId, &str)>,
        gone: &[ServerId],
    ) -> Result<Roll, StoreError> {
        let mut anew = false;
        if let Some((server, entry)) = own {
            // As in Redis, records are read even if a write fails.
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
        announcer: Option<&Notifier>,
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
}
