//! Maps each partition to the thread that runs its actor. A running actor stays on its thread until
//! its queue is empty.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use crate::model::Partition;

/// Number of the thread of each partition.
#[derive(Debug)]
pub(crate) struct ThreadMap {
    threads: u16,
    thread_by_partition: Box<[AtomicU16]>,
}

impl ThreadMap {
    /// Creates a map to `threads` threads, at least one.
    pub(crate) fn new(partitions: u16, threads: usize) -> Self {
        let threads = u16::try_from(threads).unwrap_or(u16::MAX).max(1);
        Self {
            threads,
            thread_by_partition: (0..partitions)
                .map(|partition| AtomicU16::new(partition % threads))
                .collect(),
        }
    }

    /// Returns the thread of a partition.
    pub(crate) fn thread_for(&self, partition: Partition) -> usize {
        self.thread_by_partition
            .get(usize::from(partition.0))
            .map_or(0, |thread| thread.load(Relaxed).into())
    }

    /// Spreads the local partitions evenly over the threads, and then the remote ones.
    pub(crate) fn rebalance(&self, is_local: impl Fn(Partition) -> bool) {
        let all = || (0..).map(Partition).zip(&self.thread_by_partition);
        let local = all().filter(|(partition, _)| is_local(*partition));
        let remote = all().filter(|(partition, _)| !is_local(*partition));
        for (rank, (_, thread)) in (0..self.threads).cycle().zip(local.chain(remote)) {
            thread.store(rank, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_remote_partitions_are_spread_evenly() {
        let map = ThreadMap::new(16, 4);
        let number = |thread: usize, at: &[u16]| {
            at.iter()
                .filter(|&&at| map.thread_for(Partition(at)) == thread)
                .count()
        };
        let (local, remote): (Vec<u16>, Vec<u16>) = (0..16).partition(|at| at % 4 == 0);
        assert_eq!((number(0, &local), number(0, &remote)), (4, 0));
        map.rebalance(|partition| local.contains(&partition.0));
        for thread in 0..4 {
            assert_eq!(
                (number(thread, &local), number(thread, &remote)),
                (1, 3),
                "{thread}"
            );
        }
    }
}
