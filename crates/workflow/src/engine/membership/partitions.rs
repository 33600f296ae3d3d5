//! The partitions that are at home at this server.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::id::Partition;

/// For each partition whether it is at home here.
#[derive(Debug, Default)]
pub(crate) struct LocalPartitions(Box<[AtomicBool]>);

impl LocalPartitions {
    /// A server that knows of no other has all.
    pub(crate) fn all(partitions: u16) -> Self {
        Self((0..partitions).map(|_| AtomicBool::new(true)).collect())
    }

    pub(crate) fn contains(&self, partition: Partition) -> bool {
        self.0
            .get(usize::from(partition.0))
            .is_none_or(|mine| mine.load(Relaxed))
    }

    /// Returns whether that is another than before.
    pub(crate) fn assign(&self, partition: Partition, mine: bool) -> bool {
        self.0
            .get(usize::from(partition.0))
            .is_some_and(|before| before.swap(mine, Relaxed) != mine)
    }

    /// Whether some are not.
    pub(crate) fn is_partial(&self) -> bool {
        self.0.iter().any(|mine| !mine.load(Relaxed))
    }

    /// Those that are.
    pub(crate) fn each(&self) -> impl Iterator<Item = Partition> + '_ {
        (0..)
            .map(Partition)
            .zip(&self.0)
            .filter(|(_, mine)| mine.load(Relaxed))
            .map(|(partition, _)| partition)
    }
}
