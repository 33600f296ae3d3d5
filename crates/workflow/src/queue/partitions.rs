//! The partitions that are assigned to this server.

pub(crate) mod thread_map;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::model::Partition;

/// Whether each partition is assigned to this server.
#[derive(Debug, Default)]
pub(crate) struct LocalPartitions(Box<[AtomicBool]>);

impl LocalPartitions {
    /// Returns a set of all partitions, for a server that knows of no other.
    pub(crate) fn all(partitions: u16) -> Self {
        Self((0..partitions).map(|_| AtomicBool::new(true)).collect())
    }

    pub(crate) fn contains(&self, partition: Partition) -> bool {
        self.0
            .get(usize::from(partition.0))
            .is_none_or(|is_local| is_local.load(Relaxed))
    }

    /// Sets whether a partition is assigned to this server. Returns whether that is a change.
    pub(crate) fn assign(&self, partition: Partition, is_local: bool) -> bool {
        self.0
            .get(usize::from(partition.0))
            .is_some_and(|flag| flag.swap(is_local, Relaxed) != is_local)
    }

    /// Whether some partitions are not assigned to this server.
    pub(crate) fn is_partial(&self) -> bool {
        self.0.iter().any(|is_local| !is_local.load(Relaxed))
    }

    /// Returns the partitions that are assigned to this server.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Partition> + '_ {
        (0..)
            .map(Partition)
            .zip(&self.0)
            .filter(|(_, is_local)| is_local.load(Relaxed))
            .map(|(partition, _)| partition)
    }
}
