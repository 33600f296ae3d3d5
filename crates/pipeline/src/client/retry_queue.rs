//! Bounds the calls that wait to be sent again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::batch::Load;
use crate::config::Config;
use crate::link::{Stats, count};

/// The calls of one client that wait to be sent again. They are in no node's queue while they wait.
///
/// Each node has a separate bound, so that callers of a lost node do not use up the room of others.
/// Only calls that failed once come here, so the usual path does not pay for the lock.
#[derive(Debug)]
pub(crate) struct RetryQueue {
    /// Load by the name of the last node, which is empty if no node is known. A node without
    /// waiting calls has no entry.
    loads: Mutex<HashMap<Arc<str>, Load>>,
    bound: Load,
    refused: AtomicU64,
}

/// Priority of a call in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryPriority {
    /// The commands that are sent again depend on no command that ran.
    Normal,
    /// A command may have run that must not stay alone, such as an increment without its expiry.
    PartlyRun,
}

/// The permit of one call. Dropping it frees its room.
#[derive(Debug)]
pub(crate) struct RetryPermit<'a> {
    queue: &'a RetryQueue,
    node: Arc<str>,
    load: Load,
}

impl RetryQueue {
    /// Creates an empty queue with the bounds of a node's queue.
    pub(crate) fn new(config: &Config) -> Self {
        let bound = Load {
            commands: config.queue_commands,
            bytes: config.queue_bytes,
        };
        Self {
            loads: Mutex::default(),
            bound,
            refused: AtomicU64::new(0),
        }
    }

    fn loads(&self) -> MutexGuard<'_, HashMap<Arc<str>, Load>> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires a permit for a call that waits for a node. `None` if there is no room. A call
    /// larger than the bounds has room if no other call waits.
    ///
    /// Calls that have partly run get twice the room, so that others cannot take it from them.
    pub(crate) fn acquire(
        &self,
        node: Arc<str>,
        load: Load,
        priority: RetryPriority,
    ) -> Option<RetryPermit<'_>> {
        let mut bound = self.bound;
        if priority == RetryPriority::PartlyRun {
            bound.add(self.bound);
        }
        let mut loads = self.loads();
        let queued = loads.entry(node.clone()).or_default();
        if queued.commands > 0 && !queued.fits(load, bound) {
            count(&self.refused, load.commands);
            return None;
        }
        queued.add(load);
        Some(RetryPermit {
            queue: self,
            node,
            load,
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        let retrying = self.loads().values().map(|load| load.commands as u64).sum();
        Stats {
            retrying,
            overloads: self.refused.load(Relaxed),
            ..Stats::default()
        }
    }
}

impl Drop for RetryPermit<'_> {
    fn drop(&mut self) {
        let mut loads = self.queue.loads();
        if let Some(queued) = loads.get_mut(&self.node) {
            queued.remove(self.load);
            if queued.commands == 0 {
                loads.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_have_begun_have_room_that_others_cannot_take() {
        let mut config = Config::single("127.0.0.1:1".parse().expect("an address"));
        config.queue_commands = 4;
        config.queue_bytes = 100;
        let waiting = RetryQueue::new(&config);
        let enter = |load, progress| waiting.acquire("a".into(), load, progress);
        let call = |commands, bytes| Load { commands, bytes };
        // A call larger than the bounds has room if no other call waits.
        drop(enter(call(9, 900), RetryPriority::Normal).expect("a place"));
        let first = enter(call(4, 10), RetryPriority::Normal);
        assert!(first.is_some());
        assert!(enter(call(1, 1), RetryPriority::Normal).is_none());
        let begun = enter(call(4, 10), RetryPriority::PartlyRun);
        assert!(begun.is_some());
        assert!(enter(call(1, 1), RetryPriority::PartlyRun).is_none());
        assert_eq!(
            (waiting.stats().retrying, waiting.stats().overloads),
            (8, 2)
        );
        drop(first);
        assert!(
            enter(call(1, 1), RetryPriority::Normal).is_none(),
            "those that have begun count"
        );
        assert!(
            enter(call(1, 191), RetryPriority::PartlyRun).is_none(),
            "so many bytes"
        );
        let other = waiting.acquire("b".into(), call(4, 100), RetryPriority::Normal);
        assert!(other.is_some(), "another node has room of its own");
        drop((begun, other));
        assert_eq!(waiting.stats().retrying, 0);
        assert!(waiting.loads().is_empty());
    }
}
