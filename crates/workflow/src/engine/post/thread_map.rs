//! Maps each partition to the thread that runs its actor. A running actor stays on its thread until
//! its queue is empty.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use crate::id::Partition;

/// Number of the thread of each partition.
#[derive(Debug)]
pub(crate) struct ThreadMap {
    threads: u16,
    each: Box<[AtomicU16]>,
}

/// The thread of a caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallerThread<'a> {
    spread: &'a ThreadMap,
    thread: usize,
}

impl ThreadMap {
    /// Creates a map to `threads` threads, at least one.
    pub(crate) fn new(partitions: u16, threads: usize) -> Self {
        let threads = u16::try_from(threads).unwrap_or(u16::MAX).max(1);
        Self {
            threads,
            each: (0..partitions)
                .map(|partition| AtomicU16::new(partition % threads))
                .collect(),
        }
    }

    /// Returns the thread of a partition.
    pub(crate) fn thread_for(&self, partition: Partition) -> usize {
        self.each
            .get(usize::from(partition.0))
            .map_or(0, |thread| thread.load(Relaxed).into())
    }

    /// Spreads the local partitions evenly over the threads, and then the remote ones.
    pub(crate) fn rebalance(&self, is_at_home: impl Fn(Partition) -> bool) {
        let all = || (0..).map(Partition).zip(&self.each);
        let home = all().filter(|(partition, _)| is_at_home(*partition));
        let others = all().filter(|(partition, _)| !is_at_home(*partition));
        for (rank, (_, thread)) in (0..self.threads).cycle().zip(home.chain(others)) {
            thread.store(rank, Relaxed);
        }
    }

    /// Returns the thread with this number, as the thread of a caller.
    pub(crate) fn near(&self, thread: usize) -> CallerThread<'_> {
        CallerThread {
            spread: self,
            thread,
        }
    }
}

impl CallerThread<'_> {
    /// Whether the actor of a partition runs on this thread.
    pub(crate) fn has(&self, partition: Partition) -> bool {
        self.spread.threads == 1 || self.spread.thread_for(partition) == self.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_and_others_are_spread_evenly() {
        let spread = ThreadMap::new(16, 4);
        let number = |thread: usize, at: &[u16]| {
            at.iter()
                .filter(|&&at| spread.thread_for(Partition(at)) == thread)
                .count()
        };
        let (homes, others): (Vec<u16>, Vec<u16>) = (0..16).partition(|at| at % 4 == 0);
        assert_eq!((number(0, &homes), number(0, &others)), (4, 0));
        spread.rebalance(|partition| homes.contains(&partition.0));
        for thread in 0..4 {
            assert_eq!(
                (number(thread, &homes), number(thread, &others)),
                (1, 3),
                "{thread}"
            );
            assert!(spread.near(thread).has(Partition(homes[thread])));
        }
        assert!(
            ThreadMap::new(16, 1).near(7).has(Partition(3)),
            "with one thread all is near"
        );
    }
}
