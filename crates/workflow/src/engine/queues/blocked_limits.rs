//! Limits without room, and the keys whose jobs wait for them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use crate::engine::limits::{counted_by, is_counted_by, is_set, number_in};
use crate::time::Timestamp;

/// So many limits are remembered to which units returned while nobody knew that they had none.
const RETURNS: usize = 4_096;

/// The times at which limits of one window have room again may differ by this much, because they are computed when answers arrive.
const SAME_TURN: Duration = Duration::from_millis(100);

/// A queue, and the key of limits of some of its jobs.
pub(super) type ParkedLane = (Arc<str>, Arc<str>);

/// A limit without room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitBlock {
    /// When it may have room again, unless a unit returns before.
    pub(crate) until: Timestamp,
    /// How many jobs have room then, if that is known.
    pub(crate) room: Option<usize>,
    /// When it has room by the passing of time alone; none where somebody must give a unit back.
    pub(crate) turns_at: Option<Timestamp>,
}

/// A limit that may have room again.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) closing: LimitBlock,
    /// The queues and keys whose jobs waited for it.
    pub(super) parked: HashSet<ParkedLane>,
    pub(super) place: OpenPosition,
}

/// The place of a key that may have room again, in the order of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenPosition {
    /// Once before all others: its jobs take several units, and small ones would use up each window before it is asked for them.
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

/// Limits without room.
#[derive(Debug, Default)]
pub(super) struct BlockedLimits {
    each: BTreeMap<Arc<str>, BlockedLimit>,
    due: BTreeSet<(Timestamp, Arc<str>)>,
    /// How often units have returned, to whatever limit; and to which at what number.
    returned: u64,
    returns: HashMap<Arc<str>, u64>,
    /// To limits that are not in `returns` none returned after this number, to sets not after the other.
    forgotten: u64,
    freed: u64,
}

impl BlockedLimits {
    /// The first of these limits that has no room.
    pub(super) fn closes(&self, limits: &[Arc<str>]) -> Option<Arc<str>> {
        if self.each.is_empty() {
            return None;
        }
        limits
            .iter()
            .find(|name| self.each.contains_key(&***name))
            .cloned()
    }

    /// A number that tells returns before from those after.
    pub(super) fn returned(&self) -> u64 {
        self.returned
    }

    /// A limit has no room. Returns false if a unit has returned since `asked`: then nobody knows.
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

    /// The jobs of a key wait for a limit that is closed.
    pub(super) fn park(&mut self, limit: &str, parked: ParkedLane) {
        if let Some(closed) = self.each.get_mut(limit) {
            closed.parked.insert(parked);
        }
    }

    /// A unit returned to a limit, or it may have room for another reason: for jobs that take however many. Returns who waited for it.
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

    /// Takes the closed limits of one counter that may have room at `until`, or all of them, those first whose jobs take most.
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

    /// Units may have returned to any limit. Returns who waited for each.
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

    /// Places may have been freed in any set. Returns who waited for each.
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

    /// Limits of one counter that may have room again by now, those first whose jobs take most. None: no limit has.
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

    /// When the first one has room by the passing of time alone. Looks at all of them.
    pub(super) fn next_turn(&self) -> Option<Timestamp> {
        self.each
            .values()
            .filter_map(|closed| closed.closing.turns_at)
            .min()
    }

    /// When the next one may have room again.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, _)| *until)
    }
}
