//! Limits without room, and the keys whose jobs wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::engine::limits::{counted_by, is_counted_by, is_set};
use crate::time::Timestamp;

/// So many limits are remembered to which units returned while nobody knew that they had none.
const RETURNS: usize = 4_096;

/// A queue, and the key of limits of some of its jobs.
pub(super) type Parked = (Arc<str>, Arc<str>);

/// A limit without room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Closing {
    /// When it may have room again, unless a unit returns before.
    pub(crate) until: Timestamp,
    /// How many jobs have room then, if that is known.
    pub(crate) room: Option<usize>,
    /// When it has room by the passing of time alone; none where somebody must give a unit back.
    pub(crate) turns_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Closed {
    closing: Closing,
    parked: HashSet<Parked>,
}

/// Limits without room.
#[derive(Debug, Default)]
pub(super) struct Closings {
    each: BTreeMap<Arc<str>, Closed>,
    due: BTreeSet<(Timestamp, Arc<str>)>,
    /// How often units have returned, to whatever limit; and to which at what number.
    returned: u64,
    returns: HashMap<Arc<str>, u64>,
    /// To limits that are not in `returns` none returned after this number, to sets not after the other.
    forgotten: u64,
    freed: u64,
}

impl Closings {
    /// The first of these limits that has no room.
    pub(super) fn closes(&self, limits: &[Arc<str>]) -> Option<Arc<str>> {
        if self.each.is_empty() {
            return None;
        }
        limits.iter().find(|name| self.each.contains_key(&***name)).cloned()
    }

    /// A number that tells returns before from those after.
    pub(super) fn returned(&self) -> u64 {
        self.returned
    }

    /// A limit has no room. Returns false if a unit has returned since `asked`: then nobody knows.
    pub(super) fn close(&mut self, limit: &Arc<str>, closing: Closing, asked: u64) -> bool {
        let forgotten = if is_set(limit) { self.forgotten.max(self.freed) } else { self.forgotten };
        if self.returns.get(counted_by(limit)).copied().unwrap_or(forgotten) > asked {
            return false;
        }
        let new = || Closed { closing: closing.clone(), parked: HashSet::new() };
        let closed = self.each.entry(Arc::clone(limit)).or_insert_with(new);
        self.due.remove(&(closed.closing.until, Arc::clone(limit)));
        self.due.insert((closing.until, Arc::clone(limit)));
        closed.closing = closing;
        true
    }

    /// The jobs of a key wait for a limit that is closed.
    pub(super) fn park(&mut self, limit: &str, parked: Parked) {
        if let Some(closed) = self.each.get_mut(limit) {
            closed.parked.insert(parked);
        }
    }

    /// A unit returned to a limit, or it may have room for another reason: for jobs that take however many. Returns who waited for it.
    pub(super) fn open(&mut self, limit: &str) -> Vec<HashSet<Parked>> {
        let limit = counted_by(limit);
        self.returned += 1;
        if self.returns.len() >= RETURNS {
            self.returns.clear();
            self.forgotten = self.returned;
        }
        self.returns.insert(limit.into(), self.returned);
        let beginning = (Bound::Included(limit), Bound::Unbounded);
        let names = self.each.range::<str, _>(beginning).map(|(name, _)| Arc::clone(name));
        let names: Vec<Arc<str>> = names.take_while(|name| is_counted_by(name, limit)).collect();
        names.iter().filter_map(|name| Some(self.take(name)?.1)).collect()
    }

    /// Units may have returned to any limit. Returns who waited for each.
    pub(super) fn open_all(&mut self) -> Vec<HashSet<Parked>> {
        self.returned += 1;
        self.returns.clear();
        self.forgotten = self.returned;
        self.due.clear();
        std::mem::take(&mut self.each).into_values().map(|closed| closed.parked).collect()
    }

    /// Places may have been freed in any set. Returns who waited for each.
    pub(super) fn open_sets(&mut self) -> Vec<HashSet<Parked>> {
        self.returned += 1;
        self.returns.retain(|limit, _| !is_set(limit));
        self.freed = self.returned;
        let sets: Vec<Arc<str>> = self.each.keys().filter(|name| is_set(name)).cloned().collect();
        sets.iter().filter_map(|name| Some(self.take(name)?.1)).collect()
    }

    fn take(&mut self, limit: &str) -> Option<(Closing, HashSet<Parked>)> {
        let (name, Closed { closing, parked }) = self.each.remove_entry(limit)?;
        self.due.remove(&(closing.until, name));
        Some((closing, parked))
    }

    /// One of the limits that may have room again by now, and who waited for it.
    pub(super) fn next_open(&mut self, now: Timestamp) -> Option<(Closing, HashSet<Parked>)> {
        let (until, limit) = self.due.first()?;
        if *until > now {
            return None;
        }
        let limit = Arc::clone(limit);
        self.take(&limit)
    }

    /// When the first one has room by the passing of time alone. Looks at all of them.
    pub(super) fn next_turn(&self) -> Option<Timestamp> {
        self.each.values().filter_map(|closed| closed.closing.turns_at).min()
    }

    /// When the next one may have room again.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, _)| *until)
    }
}
