//! Limits without capacity, and the keys whose jobs wait for them.

mod limit_blocking;
pub(crate) mod limit_names;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use self::limit_names::{counter_prefix, has_counter_prefix, is_concurrency_limit, number_in};
use crate::model::Timestamp;

/// Maximum number of limits whose latest return of a unit is kept while they are not blocked.
/// Beyond it, all are forgotten and count as returned just now.
const MAX_RETURNS: usize = 4_096;

/// Tolerance for the end of a window: it is computed when an answer arrives, so limits of one
/// window differ.
const WINDOW_END_TOLERANCE: Duration = Duration::from_millis(100);

/// A queue, and the key of limits of some of its jobs.
pub(super) type ParkedLane = (Arc<str>, Arc<str>);

/// The state of a limit without capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitBlock {
    /// Time at which the limit may have capacity again, unless a unit returns before.
    pub(crate) until: Timestamp,
    /// Number of jobs for which there is capacity then, if known.
    pub(crate) capacity: Option<usize>,
    /// Time at which the window ends. `None` if only a returned permit makes room.
    pub(crate) window_ends_at: Option<Timestamp>,
}

/// A limit that may have capacity again.
#[derive(Debug)]
pub(super) struct UnblockedLimit {
    pub(super) block: LimitBlock,
    /// The queues and keys whose jobs waited for the limit.
    pub(super) parked: HashSet<ParkedLane>,
    pub(super) position: UnblockPosition,
}

/// Position of an unblocked key in the dispatch order of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnblockPosition {
    /// Once before all other keys. Its jobs take several units, and jobs that take one unit would
    /// else use up each window first.
    First,
    Last,
}

#[derive(Debug)]
struct BlockedLimit {
    block: LimitBlock,
    parked: HashSet<ParkedLane>,
}

impl BlockedLimit {
    fn into_unblocked(self, name: &str) -> UnblockedLimit {
        let Self { block, parked } = self;
        let position = if !is_concurrency_limit(name) && number_in(name) > 1 {
            UnblockPosition::First
        } else {
            UnblockPosition::Last
        };
        UnblockedLimit {
            block,
            parked,
            position,
        }
    }
}

/// The blocked limits of all queues.
#[derive(Debug, Default)]
pub(crate) struct BlockedLimits {
    limits: BTreeMap<Arc<str>, BlockedLimit>,
    due: BTreeSet<(Timestamp, Arc<str>)>,
    /// Number of units that returned to any limit so far, and the number of the latest return to
    /// each limit.
    return_count: u64,
    returns_by_limit: HashMap<Arc<str>, u64>,
    /// Latest number at which a return to a limit that is not in `returns_by_limit` is possible:
    /// for any limit, and for limits on concurrency.
    last_forgotten_return: u64,
    last_freed_permit: u64,
}

impl BlockedLimits {
    /// Returns the first of these limits that is blocked.
    pub(super) fn first_blocked(&self, limits: &[Arc<str>]) -> Option<Arc<str>> {
        if self.limits.is_empty() {
            return None;
        }
        limits
            .iter()
            .find(|name| self.limits.contains_key(&***name))
            .cloned()
    }

    /// Number of returned units so far, which tells earlier returns from later ones.
    pub(super) fn return_count(&self) -> u64 {
        self.return_count
    }

    /// Blocks a limit. Returns false if a unit has returned since `as_of`: then the limit may have
    /// capacity.
    pub(super) fn block(&mut self, limit: &Arc<str>, block: LimitBlock, as_of: u64) -> bool {
        let last_possible_return = if is_concurrency_limit(limit) {
            self.last_forgotten_return.max(self.last_freed_permit)
        } else {
            self.last_forgotten_return
        };
        if self
            .returns_by_limit
            .get(counter_prefix(limit))
            .copied()
            .unwrap_or(last_possible_return)
            > as_of
        {
            return false;
        }
        let new = || BlockedLimit {
            block: block.clone(),
            parked: HashSet::new(),
        };
        let blocked = self.limits.entry(Arc::clone(limit)).or_insert_with(new);
        self.due.remove(&(blocked.block.until, Arc::clone(limit)));
        self.due.insert((block.until, Arc::clone(limit)));
        blocked.block = block;
        true
    }

    /// Parks a key under a blocked limit.
    pub(super) fn park(&mut self, limit: &str, parked: ParkedLane) {
        if let Some(blocked) = self.limits.get_mut(limit) {
            blocked.parked.insert(parked);
        }
    }

    /// Unblocks a limit to which a unit returned, or which may have capacity for another reason,
    /// whatever number of units its jobs take. Returns what was blocked.
    pub(super) fn unblock(&mut self, limit: &str) -> Vec<UnblockedLimit> {
        let limit = counter_prefix(limit);
        self.return_count += 1;
        if self.returns_by_limit.len() >= MAX_RETURNS {
            self.returns_by_limit.clear();
            self.last_forgotten_return = self.return_count;
        }
        self.returns_by_limit
            .insert(limit.into(), self.return_count);
        self.remove_by_counter(limit, None)
    }

    /// Unblocks the limits of one counter that may have capacity at `until`, or all of them if
    /// `None`. Those whose jobs take most units go first.
    fn remove_by_counter(&mut self, limit: &str, until: Option<Timestamp>) -> Vec<UnblockedLimit> {
        let beginning = (Bound::Included(limit), Bound::Unbounded);
        let counted = self
            .limits
            .range::<str, _>(beginning)
            .take_while(|(name, _)| has_counter_prefix(name, limit));
        let counted =
            counted.filter(|(_, blocked)| until.is_none_or(|until| blocked.block.until <= until));
        let mut names: Vec<Arc<str>> = counted.map(|(name, _)| Arc::clone(name)).collect();
        names.sort_by_key(|name| Reverse(number_in(name)));
        names.iter().filter_map(|name| self.remove(name)).collect()
    }

    /// Unblocks all limits, because units may have returned to any of them. Returns what was
    /// blocked.
    pub(super) fn unblock_all(&mut self) -> Vec<UnblockedLimit> {
        self.return_count += 1;
        self.returns_by_limit.clear();
        self.last_forgotten_return = self.return_count;
        self.due.clear();
        std::mem::take(&mut self.limits)
            .into_iter()
            .map(|(name, blocked)| blocked.into_unblocked(&name))
            .collect()
    }

    /// Unblocks all limits on concurrency, because permits may have been freed under any of them.
    /// Returns what was blocked.
    pub(super) fn unblock_concurrency_limits(&mut self) -> Vec<UnblockedLimit> {
        self.return_count += 1;
        self.returns_by_limit
            .retain(|limit, _| !is_concurrency_limit(limit));
        self.last_freed_permit = self.return_count;
        let sets: Vec<Arc<str>> = self
            .limits
            .keys()
            .filter(|name| is_concurrency_limit(name))
            .cloned()
            .collect();
        sets.iter().filter_map(|name| self.remove(name)).collect()
    }

    fn remove(&mut self, limit: &str) -> Option<UnblockedLimit> {
        let (name, blocked) = self.limits.remove_entry(limit)?;
        self.due.remove(&(blocked.block.until, Arc::clone(&name)));
        Some(blocked.into_unblocked(&name))
    }

    /// Unblocks the limits of one counter that may have capacity by now. Those whose jobs take most
    /// units go first. Empty if no limit is due.
    pub(super) fn unblock_due(&mut self, now: Timestamp) -> Vec<UnblockedLimit> {
        let Some((until, limit)) = self.due.first().filter(|(until, _)| *until <= now) else {
            return Vec::new();
        };
        let until = *until;
        let limit = Arc::clone(limit);
        if is_concurrency_limit(&limit) {
            self.remove(&limit).into_iter().collect()
        } else {
            self.remove_by_counter(counter_prefix(&limit), Some(until + WINDOW_END_TOLERANCE))
        }
    }

    /// Time at which the first window ends. Takes time linear in the number of blocked limits.
    pub(super) fn next_window_end(&self) -> Option<Timestamp> {
        self.limits
            .values()
            .filter_map(|blocked| blocked.block.window_ends_at)
            .min()
    }

    /// Time at which the next limit may have capacity again.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, _)| *until)
    }
}
