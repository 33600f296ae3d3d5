//! Calls that wait to be sent again: how many there may be.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::batch::load::Load;
use crate::config::Config;
use crate::stats::{Stats, count};

/// The calls of one client that wait to be sent again: their node has no queue for them to be in.
///
/// Each node has room of its own, so that the callers of a node that is lost do not take it from those of all others. Only
/// calls that have failed once come here, so no command pays for the lock on its usual way.
#[derive(Debug)]
pub(crate) struct RetryQueue {
    /// By the name of the node that was asked last, which is empty if no node is known. A node without waiting calls has no entry.
    loads: Mutex<HashMap<Arc<str>, Load>>,
    bound: Load,
    refused: AtomicU64,
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing of what is sent again depends on what ran.
    None,
    /// A command may have run that must not stay alone, such as an increment without its expiry.
    Begun,
}

/// The place of one call. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct RetryPermit<'a> {
    waiting: &'a RetryQueue,
    node: Arc<str>,
    load: Load,
}

impl RetryQueue {
    /// Nobody waits. The bounds are those of a node's queue.
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

    /// A place for a call that waits for a node; none when there is no room. A call beyond the bounds has room when no
    /// other call waits.
    ///
    /// As much room again is kept for calls that have begun. Others cannot take it from them.
    pub(crate) fn enter(
        &self,
        node: Arc<str>,
        load: Load,
        progress: Progress,
    ) -> Option<RetryPermit<'_>> {
        let mut bound = self.bound;
        if progress == Progress::Begun {
            bound.add(self.bound);
        }
        let mut loads = self.loads();
        let all = loads.entry(Arc::clone(&node)).or_default();
        if all.commands > 0 && !all.fits(load, bound) {
            count(&self.refused, load.commands);
            return None;
        }
        all.add(load);
        Some(RetryPermit {
            waiting: self,
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
        let mut loads = self.waiting.loads();
        if let Some(all) = loads.get_mut(&self.node) {
            all.remove(self.load);
            if all.commands == 0 {
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
        let enter = |load, progress| waiting.enter("a".into(), load, progress);
        let call = |commands, bytes| Load { commands, bytes };
        // A call beyond the bounds, when nobody waits.
        drop(enter(call(9, 900), Progress::None).expect("a place"));
        let first = enter(call(4, 10), Progress::None);
        assert!(first.is_some());
        assert!(enter(call(1, 1), Progress::None).is_none());
        let begun = enter(call(4, 10), Progress::Begun);
        assert!(begun.is_some());
        assert!(enter(call(1, 1), Progress::Begun).is_none());
        assert_eq!(
            (waiting.stats().retrying, waiting.stats().overloads),
            (8, 2)
        );
        drop(first);
        assert!(
            enter(call(1, 1), Progress::None).is_none(),
            "those that have begun count"
        );
        assert!(
            enter(call(1, 191), Progress::Begun).is_none(),
            "so many bytes"
        );
        let other = waiting.enter("b".into(), call(4, 100), Progress::None);
        assert!(other.is_some(), "another node has room of its own");
        drop((begun, other));
        assert_eq!(waiting.stats().retrying, 0);
        assert!(waiting.loads().is_empty());
    }
}
