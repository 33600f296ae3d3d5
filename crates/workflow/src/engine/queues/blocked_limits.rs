//! Limits without capacity, and the keys whose jobs wait for them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use crate::engine::limits::{counted_by, is_counted_by, is_set, number_in};
use crate::time::Timestamp;

/// Maximum number of limits whose latest return of a unit is kept while they are not blocked.
/// Beyond it, all are forgotten and count as returned just now.
const RETURNS: usize = 4_096;

/// Tolerance for the end of a window: it is computed when an answer arrives, so limits of one
/// window differ.
const SAME_TURN: Duration = Duration::from_millis(100);

/// A queue, and the key of limits of some of its jobs.
pub(super) type ParkedLane = (Arc<str>, Arc<str>);

/// The state of a limit without capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitBlock {
    /// Time at which the limit may have capacity again, unless a unit returns before.
    pub(crate) until: Timestamp,
    /// Number of jobs for which there is capacity then, if known.
    pub(crate) room: Option<usize>,
    /// Time at which the window ends. `None` if only a returned permit makes room.
    pub(crate) turns_at: Option<Timestamp>,
}

/// A limit that may have capacity again.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) closing: LimitBlock,
    /// The queues and keys whose jobs waited for the limit.
    pub(super) parked: HashSet<ParkedLane>,
    pub(super) place: OpenPosition,
}

/// Position of an unblocked key in the dispatch order of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenPosition {
    /// Once before all other keys. Its jobs take several units, and jobs that take one unit would
    /// else use up each window first.
    First,
    Last,
}

#[derive(Debug)]
struct BlockedLimit {
    closing: LimitBlock,
    parked: HashSet<ParkedLane>,
}

impl BlockedLimit {
    fn opened(self, name: &str) -> Opened {
        let Self { closing, parked } = self;
        let place = if !is_set(name) && number_in(name) > 1 {
            OpenPosition::First
        } else {
            OpenPosition::Last
        };
        Opened {
            closing,
            parked,
            place,
        }
    }
}

/// The blocked limits of all queues.
#[derive(Debug, Default)]
pub(super) struct BlockedLimits {
    each: BTreeMap<Arc<str>, BlockedLimit>,
    due: BTreeSet<(Timestamp, Arc<str>)>,
    /// Number of units that returned to any limit so far, and the number of the latest return to
    /// each limit.
    returned: u64,
    returns: HashMap<Arc<str>, u64>,
    /// Latest number at which a return to a limit that is not in `returns_by_limit` is possible:
    /// for any limit, and for limits on concurrency.
    forgotten: u64,
    freed: u64,
}

impl BlockedLimits {
    /// Returns the first of these limits that is blocked.
    pub(super) fn closes(&self, limits: &[Arc<str>]) -> Option<Arc<str>> {
        if self.each.is_empty() {
            return None;
        }
        limits
            .iter()
            .find(|name| self.each.contains_key(&***name))
            .cloned()
    }

    /// Number of returned units so far, which tells earlier returns from later ones.
    pub(super) fn returned(&self) -> u64 {
        self.returned
    }

    /// Blocks a limit. Returns false if a unit has returned since `as_of`: then the limit may have
    /// capacity.
    pub(super) fn block(&mut self, limit: &Arc<str>, closing: LimitBlock, asked: u64) -> bool {
        let forgotten = if is_set(limit) {
            self.forgotten.max(self.freed)
        } else {
            self.forgotten
        };
        if self
            .returns
            .get(counted_by(limit))
            .copied()
            .unwrap_or(forgotten)
            > asked
        {
            return false;
        }
        let new = || BlockedLimit {
            closing: closing.clone(),
            parked: HashSet::new(),
        };
        let closed = self.each.entry(Arc::clone(limit)).or_insert_with(new);
        self.due.remove(&(closed.closing.until, Arc::clone(limit)));
        self.due.insert((closing.until, Arc::clone(limit)));
        closed.closing = closing;
        true
    }

    /// Parks a key under a blocked limit.
    pub(super) fn park(&mut self, limit: &str, parked: ParkedLane) {
        if let Some(closed) = self.each.get_mut(limit) {
            closed.parked.insert(parked);
        }
    }

    /// Unblocks a limit to which a unit returned, or which may have capacity for another reason,
    /// whatever number of units its jobs take. Returns what was blocked.
    pub(super) fn unblock(&mut self, limit: &str) -> Vec<Opened> {
        let limit = counted_by(limit);
        self.returned += 1;
        if self.returns.len() >= RETURNS {
            self.returns.clear();
            self.forgotten = self.returned;
        }
        self.returns.insert(limit.into(), self.returned);
        self.take_counted_by(limit, None)
    }

    /// Unblocks the limits of one counter that may have capacity at `until`, or all of them if
    /// `None`. Those whose jobs take most units go first.
    fn take_counted_by(&mut self, limit: &str, until: Option<Timestamp>) -> Vec<Opened> {
        let beginning = (Bound::Included(limit), Bound::Unbounded);
        let counted = self
            .each
            .range::<str, _>(beginning)
            .take_while(|(name, _)| is_counted_by(name, limit));
        let counted =
            counted.filter(|(_, closed)| until.is_none_or(|until| closed.closing.until <= until));
        let mut names: Vec<Arc<str>> = counted.map(|(name, _)| Arc::clone(name)).collect();
        names.sort_by_key(|name| Reverse(number_in(name)));
        names.iter().filter_map(|name| self.take(name)).collect()
    }

    /// Unblocks all limits, because units may have returned to any of them. Returns what was
    /// blocked.
    pub(super) fn open_all(&mut self) -> Vec<Opened> {
        self.returned += 1;
        self.returns.clear();
        self.forgotten = self.returned;
        self.due.clear();
        std::mem::take(&mut self.each)
            .into_iter()
            .map(|(name, closed)| closed.opened(&name))
            .collect()
    }

    /// Unblocks all limits on concurrency, because permits may have been freed under any of them.
    /// Returns what was blocked.
    pub(super) fn open_sets(&mut self) -> Vec<Opened> {
        self.returned += 1;
        self.returns.retain(|limit, _| !is_set(limit));
        self.freed = self.returned;
        let sets: Vec<Arc<str>> = self
            .each
            .keys()
            .filter(|name| is_set(name))
            .cloned()
            .collect();
        sets.iter().filter_map(|name| self.take(name)).collect()
    }

    fn take(&mut self, limit: &str) -> Option<Opened> {
        let (name, closed) = self.each.remove_entry(limit)?;
        self.due.remove(&(closed.closing.until, Arc::clone(&name)));
        Some(closed.opened(&name))
    }

    /// Unblocks the limits of one counter that may have capacity by now. Those whose jobs take most
    /// units go first. Empty if no limit is due.
    pub(super) fn next_open(&mut self, now: Timestamp) -> Vec<Opened> {
        let Some((until, limit)) = self.due.first().filter(|(until, _)| *until <= now) else {
            return Vec::new();
        };
        let until = *until;
        let limit = Arc::clone(limit);
        if is_set(&limit) {
            self.take(&limit).into_iter().collect()
        } else {
            self.take_counted_by(counted_by(&limit), Some(until + SAME_TURN))
        }
    }

    /// Time at which the first window ends. Takes time linear in the number of blocked limits.
    pub(super) fn next_turn(&self) -> Option<Timestamp> {
        self.each
            .values()
            .filter_map(|closed| closed.closing.turns_at)
            .min()
    }

    /// Time at which the next limit may have capacity again.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, _)| *until)
    }
}
