//! The ready jobs of one queue by the key of their limits, and under each key by handler.
//!
//! Keys take turns by stride scheduling: a dispatched job advances the pass of its key by a stride
//! that is shorter the more weight the key has. A new key starts behind the waiting ones, so new
//! keys cannot starve them. Under a key the most urgent and oldest job goes first. A blocked key is
//! not in the order, so it costs no claim anything.

mod key_memory;
mod limit_group;

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

pub(super) use self::key_memory::Room;
pub(super) use self::limit_group::Group;
use super::blocked_limits::OpenPosition;
use super::known_jobs::KnownJobs;
use super::lane::{Lane, MoreRows};
use super::weights::Weights;
use crate::codec::rows::{ReadyKey, ReadyRow};
use crate::engine::membership::partitions::LocalPartitions;
use crate::time::Timestamp;

/// Maximum number of runnable jobs of a queue in memory, and of blocked ones: about 60 bytes each.
/// Further jobs are read from the store when these are used up.
const KEPT: usize = 16_384;
/// Number of jobs of each lane that are kept however many lanes there are.
const KEPT_EACH: usize = 16;
/// Number of keys that each queue may have even if the memory for keys is used up. Without it, one
/// queue could starve the others.
const RESERVED: usize = 32;
/// The lane of a job in its queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    /// Key of the limits, empty without limits.
    pub(crate) limits: Arc<str>,
    /// Handler of the jobs, empty if the store does not record it.
    pub(crate) handler: Arc<str>,
}

/// The ready jobs of one queue.
#[derive(Debug)]
pub(super) struct Lanes {
    room: Room,
    weights: Arc<Weights>,
    /// Jobs without limits.
    pub(super) free: Group,
    pub(super) limited: HashMap<Arc<str>, Group>,
    /// Passes and keys of the limited groups that are not blocked and have jobs.
    order: BTreeSet<(u64, Arc<str>)>,
    /// Lanes that are not blocked and have no known jobs, while the store may have some.
    thirsty: HashSet<LaneKey>,
    /// Pass of the group that was served last.
    clock: u64,
    /// Number of known jobs, and number of those that are blocked by a limit.
    known: usize,
    closed: usize,
    /// Number of limited jobs of each handler that are not blocked.
    open_of: HashMap<Arc<str>, usize>,
    /// Number of further keys that are refused before the next search for idle keys.
    refusals: usize,
}

impl Lanes {
    pub(super) fn new(room: Room, weights: Arc<Weights>) -> Self {
        Self {
            room,
            free: Group::new("".into(), &weights),
            weights,
            limited: HashMap::new(),
            order: BTreeSet::new(),
            thirsty: HashSet::new(),
            clock: 0,
            known: 0,
            closed: 0,
            open_of: HashMap::new(),
            refusals: 0,
        }
    }

    /// Number of runnable jobs of a handler.
    pub(super) fn open_of(&self, handler: &str) -> usize {
        let free = self
            .free
            .lanes
            .get(handler)
            .map_or(0, |lane| lane.heads.len());
        free + self.open_of.get(handler).copied().unwrap_or(0)
    }

    /// Counts runnable jobs of a limited key. Jobs without limits are counted by their lanes.
    fn count_open(&mut self, handler: &Arc<str>, before: usize, now: usize) {
        let Some(number) = self.open_of.get_mut(handler) else {
            self.open_of
                .insert(Arc::clone(handler), now.saturating_sub(before));
            return;
        };
        *number = (*number + now).saturating_sub(before);
        // Unused handler names are removed, so that they take no memory.
        if *number == 0 {
            self.open_of.remove(handler);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Whether a key of limits is known.
    pub(super) fn has_limits(&self) -> bool {
        !self.limited.is_empty()
    }

    pub(super) fn group(&self, limits: &str) -> Option<&Group> {
        if limits.is_empty() {
            Some(&self.free)
        } else {
            self.limited.get(limits)
        }
    }

    /// Whether the jobs of a key are not blocked.
    pub(super) fn is_open(&self, limits: &str) -> bool {
        self.group(limits)
            .is_some_and(|group| group.closed.is_none())
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        [&self.free].into_iter().chain(self.limited.values())
    }

    /// The limited groups that are not blocked and have jobs, in dispatch order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Group> {
        self.order
            .iter()
            .filter_map(|(_, key)| self.limited.get(key))
    }

    /// The lanes with runnable jobs, in no order.
    pub(super) fn open_lanes(&self) -> impl Iterator<Item = (&Arc<str>, &Lane)> {
        [&self.free]
            .into_iter()
            .chain(self.in_order())
            .flat_map(|group| &group.lanes)
    }

    /// Number of runnable jobs.
    pub(super) fn open(&self) -> usize {
        self.known - self.closed
    }

    /// Returns the most urgent job without limits.
    pub(super) fn first_free(&self) -> Option<&ReadyKey> {
        self.free
            .lanes
            .values()
            .filter_map(|lane| lane.heads.first())
            .min()
    }

    /// Whether a lane has runnable jobs in partitions that are assigned to this server.
    pub(super) fn has_here(&self) -> bool {
        let groups = [&self.free].into_iter().chain(self.in_order());
        groups
            .flat_map(|group| group.lanes.values())
            .any(|lane| !lane.heads.local.is_empty())
    }

    /// Whether known remote jobs may be gone from the store.
    pub(super) fn are_stale(&self, now: Timestamp) -> bool {
        let groups = [&self.free].into_iter().chain(self.in_order());
        groups
            .flat_map(|group| group.lanes.values())
            .any(|lane| lane.heads.are_stale(now))
    }

    pub(super) fn has(&self, key: &LaneKey, head: &ReadyKey) -> bool {
        let lane = self
            .group(&key.limits)
            .and_then(|group| group.lanes.get(&key.handler));
        lane.is_some_and(|lane| lane.heads.contains(head))
    }

    /// Returns the lane of a row. Reuses the texts that are kept here already.
    pub(super) fn key_of(&self, row: &ReadyRow<'_>) -> LaneKey {
        let group = self.group(row.limit_key);
        let handler = group
            .and_then(|group| group.lanes.get_key_value(row.handler))
            .map(|(handler, _)| handler);
        LaneKey {
            limits: group.map_or_else(|| row.limit_key.into(), |group| Arc::clone(&group.key)),
            handler: handler.map_or_else(|| row.handler.into(), Arc::clone),
        }
    }

    /// Changes a lane, which is created if there is memory for its key. `None` if there is not.
    pub(super) fn change<T>(
        &mut self,
        key: &LaneKey,
        change: impl FnOnce(&mut Lane) -> T,
    ) -> Option<T> {
        if !key.limits.is_empty() && !self.limited.contains_key(&key.limits) {
            self.make_room(Group::bytes(&key.limits))?;
            let group = Group::new(Arc::clone(&key.limits), &self.weights);
            self.limited.insert(Arc::clone(&key.limits), group);
        }
        self.change_lane(key, Missing::Made, change)
    }

    fn change_lane<T>(
        &mut self,
        key: &LaneKey,
        missing: Missing,
        change: impl FnOnce(&mut Lane) -> T,
    ) -> Option<T> {
        let group = if key.limits.is_empty() {
            &mut self.free
        } else {
            self.limited.get_mut(&key.limits)?
        };
        let was_active = group.is_active();
        let was_known = group.known;
        let lane = match group.lanes.get_mut(&key.handler) {
            Some(lane) => lane,
            None if missing == Missing::Left => return None,
            None => group.lanes.entry(Arc::clone(&key.handler)).or_default(),
        };
        let before = lane.heads.len();
        let was_thirsty = lane.is_thirsty();
        let result = change(lane);
        let is_thirsty = lane.is_thirsty();
        let now = lane.heads.len();
        if lane.is_idle() {
            group.lanes.remove(&key.handler);
        }
        group.known = was_known + now - before;
        self.known = self.known + group.known - was_known;
        let is_closed = group.closed.is_some();
        if is_closed {
            self.closed = self.closed + group.known - was_known;
        } else if was_thirsty != is_thirsty {
            if is_thirsty {
                _ = self.thirsty.insert(key.clone())
            } else {
                _ = self.thirsty.remove(key)
            }
        }
        match (was_active, group.is_active()) {
            (false, true) => {
                group.pass = group.pass.max(self.clock + group.stride());
                if !group.key.is_empty() {
                    self.order.insert((group.pass, Arc::clone(&group.key)));
                }
            }
            (true, false) => _ = self.order.remove(&(group.pass, Arc::clone(&group.key))),
            _ => {}
        }
        if !is_closed && now != before && !key.limits.is_empty() {
            self.count_open(&key.handler, before, now);
        }
        Some(result)
    }

    fn make_room(&mut self, bytes: usize) -> Option<()> {
        if self.room.take(bytes) {
            return Some(());
        }
        if self.limited.len() < RESERVED {
            self.room.overdraw(bytes);
            return Some(());
        }
        if self.refusals > 0 {
            self.refusals -= 1;
            return None;
        }
        // The search takes time linear in the number of keys, so it is not done for each new key.
        self.refusals = self.limited.len() / 8;
        let room = &self.room;
        self.limited.retain(|key, group| {
            let idle = group.is_idle();
            if idle {
                room.give_back(Group::bytes(key));
            }
            !idle
        });
        self.room.take(bytes).then_some(())
    }

    /// Changes every known lane.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&LaneKey, &mut Lane)) {
        for key in self.keys() {
            self.change(&key, |lane| change(&key, lane));
        }
    }

    /// Returns all known lanes.
    pub(super) fn keys(&self) -> Vec<LaneKey> {
        let lanes = self.groups().flat_map(Group::lane_keys);
        lanes.map(|(key, _)| key).collect()
    }

    /// Adds a job. Returns false if it was not kept, or another job was forgotten for it.
    pub(super) fn insert(
        &mut self,
        key: &LaneKey,
        head: ReadyKey,
        mine: &LocalPartitions,
        now: Timestamp,
    ) -> bool {
        // Blocked jobs take no room from runnable ones.
        let (known, lanes) = if self
            .group(&key.limits)
            .is_some_and(|group| group.closed.is_some())
        {
            (
                self.closed,
                self.limited.len().saturating_sub(self.order.len()),
            )
        } else {
            (self.open(), self.order.len() + self.free.lanes.len())
        };
        let most = (KEPT / lanes.max(1)).max(KEPT_EACH);
        let inserted = self.change(key, |lane| {
            lane.heads.insert(head, mine, now);
            let full = known >= KEPT && lane.heads.len() > most;
            if full && let Some(forgotten) = lane.heads.pop_last() {
                lane.mark_incomplete(forgotten.workflow().partition(), mine);
            }
            !full
        });
        inserted.unwrap_or(false)
    }

    /// Removes a job, if it is known.
    pub(super) fn remove(&mut self, key: &LaneKey, head: &ReadyKey) {
        self.change_lane(key, Missing::Left, |lane| lane.heads.remove(head));
    }

    /// Advances the pass of a key after one of its jobs was dequeued, so that other keys go next.
    /// Reverses that after the job was requeued.
    pub(super) fn serve(&mut self, limits: &str, served: Served) {
        let clock = self.clock;
        let group = if limits.is_empty() {
            Some(&mut self.free)
        } else {
            self.limited.get_mut(limits)
        };
        let Some(group) = group else { return };
        let before = group.pass;
        group.pass = match served {
            Served::Yes => before.max(clock) + group.stride(),
            Served::Not => before.saturating_sub(group.stride()),
        };
        if served == Served::Yes {
            self.clock = clock.max(before);
        }
        if !limits.is_empty() && self.order.remove(&(before, Arc::clone(&group.key))) {
            self.order.insert((group.pass, Arc::clone(&group.key)));
        }
    }

    /// Blocks a key: its jobs wait for capacity under a limit.
    pub(super) fn close(&mut self, key: &str, limit: &Arc<str>, mine: &LocalPartitions) {
        let Some(group) = self.limited.get_mut(key) else {
            return;
        };
        self.order.remove(&(group.pass, Arc::clone(&group.key)));
        let was_open = group.closed.replace(Arc::clone(limit)).is_none();
        if was_open {
            self.closed += group.known;
        }
        let lanes: Vec<(LaneKey, usize)> = group
            .lane_keys()
            .map(|(key, lane)| (key, lane.heads.len()))
            .collect();
        for (key, number) in &lanes {
            self.thirsty.remove(key);
            if was_open && *number > 0 {
                self.count_open(&key.handler, *number, 0);
            }
            if self.closed > KEPT {
                self.change(key, |lane| lane.forget_behind(KEPT_EACH, mine));
            }
        }
    }

    /// Marks known lanes: the store may have more of their jobs. They are read when the known jobs
    /// are used up.
    pub(super) fn doubt(&mut self, lanes: &HashSet<LaneKey>) {
        for key in lanes {
            if self
                .group(&key.limits)
                .is_some_and(|group| group.lanes.contains_key(&key.handler))
            {
                self.change(key, |lane| lane.more = MoreRows::ALL);
            }
        }
    }

    /// Returns the lanes whose jobs are blocked by a limit.
    pub(super) fn closed_lanes(&self) -> HashSet<LaneKey> {
        let closed = self.limited.values().filter(|group| group.closed.is_some());
        closed
            .flat_map(|group| group.lane_keys().map(|(key, _)| key))
            .collect()
    }

    /// Unblocks a key. Returns the number of its known jobs.
    pub(super) fn open_again(&mut self, key: &str, place: OpenPosition) -> usize {
        let Some(group) = self
            .limited
            .get_mut(key)
            .filter(|group| group.limits.is_some())
        else {
            return 0;
        };
        if group.closed.take().is_some() {
            self.closed -= group.known;
            self.thirsty.extend(
                group
                    .lane_keys()
                    .filter(|(_, lane)| lane.is_thirsty())
                    .map(|(key, _)| key),
            );
            group.pass = match place {
                OpenPosition::First => self.clock.saturating_sub(1),
                OpenPosition::Last => group.pass.max(self.clock + group.stride()),
            };
            if group.is_active() {
                self.order.insert((group.pass, Arc::clone(&group.key)));
            }
            let lanes: Vec<(Arc<str>, usize)> = group
                .lanes
                .iter()
                .map(|(handler, lane)| (Arc::clone(handler), lane.heads.len()))
                .collect();
            let known = group.known;
            for (handler, number) in lanes.into_iter().filter(|(_, number)| *number > 0) {
                self.count_open(&handler, 0, number);
            }
            return known;
        }
        group.known
    }

    /// Sets the weights by which keys take turns from now on.
    pub(super) fn set_weights(&mut self, weights: Arc<Weights>) {
        for group in self.limited.values_mut() {
            group.weight = group.limits.as_ref().map_or(1, |limits| weights.of(limits));
        }
        self.weights = weights;
    }

    /// Lanes that are not blocked and have no known jobs, while the store may have some.
    pub(super) fn thirsty(
        &self,
        wants: impl Fn(MoreRows) -> bool,
    ) -> impl Iterator<Item = &LaneKey> {
        let more = |key: &LaneKey| {
            self.group(&key.limits)
                .and_then(|group| group.lanes.get(&key.handler))
                .map(|lane| lane.more)
        };
        self.thirsty
            .iter()
            .filter(move |key| more(key).is_some_and(&wants))
    }

    pub(super) fn has_thirsty(&self) -> bool {
        !self.thirsty.is_empty()
    }

    pub(super) fn forget_all(&mut self) {
        self.change_all(|_, lane| lane.heads = KnownJobs::default());
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.limited
            .keys()
            .for_each(|key| self.room.give_back(Group::bytes(key)));
    }
}

/// Handling of a lane that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Made,
    Left,
}

/// Change of a job that moves the pass of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    Yes,
    /// The job was returned to its queue.
    Not,
}
