//! The ready jobs of one queue by the key of their limits, and under each key by handler.
//!
//! Keys take turns by stride scheduling: a dispatched job advances the pass of its key by a stride
//! that is shorter the more weight the key has. A new key starts behind the waiting ones, so new
//! keys cannot starve them. Under a key the most urgent and oldest job goes first. A blocked key is
//! not in the order, so it costs no claim anything.

mod blocking;
pub(crate) mod known_jobs;
pub(crate) mod lane;
mod lane_key;
mod limit_group;
mod runnable_counts;

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use self::known_jobs::KnownJobs;
use self::lane::{Lane, LaneSummary, MoreRows};
pub(crate) use self::lane_key::LaneKey;
pub(super) use self::limit_group::{KeyMemory, LimitGroup};
use self::runnable_counts::RunnableCounts;
use super::LocalPartitions;
use super::scheduler::weights::Weights;
use crate::codec::{ReadyKey, ReadyRow};
use crate::model::Timestamp;

/// Maximum number of runnable jobs of a queue in memory, and of blocked ones: about 60 bytes each.
/// Further jobs are read from the store when these are used up.
const MAX_KNOWN_JOBS: usize = 16_384;
/// Number of jobs of each lane that are kept however many lanes there are.
const MIN_KNOWN_JOBS_PER_LANE: usize = 16;
/// Number of keys that each queue may have even if the memory for keys is used up. Without it, one
/// queue could starve the others.
const RESERVED_KEYS: usize = 32;

/// The ready jobs of one queue.
#[derive(Debug)]
pub(super) struct ReadyJobs {
    key_memory: KeyMemory,
    weights: Arc<Weights>,
    /// Jobs without limits.
    pub(super) unlimited: LimitGroup,
    pub(super) limited: HashMap<Arc<str>, LimitGroup>,
    /// Passes and keys of the limited groups that are not blocked and have jobs.
    dispatch_order: BTreeSet<(u64, Arc<str>)>,
    /// Lanes that are not blocked and have no known jobs, while the store may have some.
    lanes_to_refill: HashSet<LaneKey>,
    /// Pass of the group that was served last.
    current_pass: u64,
    /// Number of known jobs, and number of those that are blocked by a limit.
    known: usize,
    blocked: usize,
    runnable_limited: RunnableCounts,
    /// Number of further keys that are refused before the next search for idle keys.
    refusals: usize,
}

impl ReadyJobs {
    pub(super) fn new(key_memory: KeyMemory, weights: Arc<Weights>) -> Self {
        Self {
            key_memory,
            unlimited: LimitGroup::new("".into(), &weights),
            weights,
            limited: HashMap::new(),
            dispatch_order: BTreeSet::new(),
            lanes_to_refill: HashSet::new(),
            current_pass: 0,
            known: 0,
            blocked: 0,
            runnable_limited: RunnableCounts::default(),
            refusals: 0,
        }
    }

    /// Number of runnable jobs of a handler.
    pub(super) fn runnable_for(&self, handler: &str) -> usize {
        let free = self
            .unlimited
            .lanes
            .get(handler)
            .map_or(0, |lane| lane.known_jobs.len());
        free + self.runnable_limited.count(handler)
    }

    pub(super) fn len(&self) -> usize {
        self.known
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Whether several keys have jobs that are not blocked, so that they take turns.
    pub(super) fn has_turns(&self) -> bool {
        self.dispatch_order.len() + usize::from(self.unlimited.is_dispatchable()) > 1
    }

    pub(super) fn group(&self, limits: &str) -> Option<&LimitGroup> {
        if limits.is_empty() {
            Some(&self.unlimited)
        } else {
            self.limited.get(limits)
        }
    }

    /// Whether the jobs of a key are not blocked.
    pub(super) fn is_runnable(&self, limits: &str) -> bool {
        self.group(limits).is_some_and(|group| !group.is_blocked())
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &LimitGroup> {
        [&self.unlimited].into_iter().chain(self.limited.values())
    }

    /// The limited groups that are not blocked and have jobs, in dispatch order.
    pub(super) fn groups_in_order(&self) -> impl Iterator<Item = &LimitGroup> {
        self.dispatch_order
            .iter()
            .filter_map(|(_, key)| self.limited.get(key))
    }

    /// The lanes with runnable jobs, in no order.
    pub(super) fn runnable_lanes(&self) -> impl Iterator<Item = (&Arc<str>, &Lane)> {
        [&self.unlimited]
            .into_iter()
            .chain(self.groups_in_order())
            .flat_map(|group| &group.lanes)
    }

    /// Number of runnable jobs.
    pub(super) fn runnable(&self) -> usize {
        self.known - self.blocked
    }

    /// Returns the most urgent job without limits.
    pub(super) fn first_unlimited(&self) -> Option<&ReadyKey> {
        self.unlimited
            .lanes
            .values()
            .filter_map(|lane| lane.known_jobs.first())
            .min()
    }

    /// Whether a lane has runnable jobs in partitions that are assigned to this server.
    pub(super) fn has_local_jobs(&self) -> bool {
        self.runnable_lanes()
            .any(|(_, lane)| !lane.known_jobs.local.is_empty())
    }

    /// Whether known remote jobs may be gone from the store.
    pub(super) fn are_stale(&self, now: Timestamp) -> bool {
        self.runnable_lanes()
            .any(|(_, lane)| lane.known_jobs.are_stale(now))
    }

    pub(super) fn contains(&self, key: &LaneKey, ready_key: &ReadyKey) -> bool {
        let lane = self
            .group(&key.limits)
            .and_then(|group| group.lanes.get(&key.handler));
        lane.is_some_and(|lane| lane.known_jobs.contains(ready_key))
    }

    /// Returns the lane of a row. Reuses the texts that are kept here already.
    pub(super) fn lane_key(&self, row: &ReadyRow<'_>) -> LaneKey {
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
            self.reserve_key_memory(LimitGroup::memory_bytes(&key.limits))?;
            let group = LimitGroup::new(Arc::clone(&key.limits), &self.weights);
            self.limited.insert(Arc::clone(&key.limits), group);
        }
        self.change_lane(key, AbsentLane::Create, change)
    }

    fn change_lane<T>(
        &mut self,
        key: &LaneKey,
        absent: AbsentLane,
        change: impl FnOnce(&mut Lane) -> T,
    ) -> Option<T> {
        let group = if key.limits.is_empty() {
            &mut self.unlimited
        } else {
            self.limited.get_mut(&key.limits)?
        };
        let was_active = group.is_dispatchable();
        let (result, before, after) = group.change_lane(&key.handler, absent, change)?;
        match (was_active, group.is_dispatchable()) {
            (false, true) => {
                group.pass = group.pass.max(self.current_pass + group.stride());
                if !key.limits.is_empty() {
                    self.dispatch_order.insert(group.dispatch_entry());
                }
            }
            (true, false) => _ = self.dispatch_order.remove(&group.dispatch_entry()),
            _ => {}
        }
        self.known = self.known + after.known - before.known;
        if group.is_blocked() {
            self.blocked = self.blocked + after.known - before.known;
        } else {
            self.record_runnable(key, before, after);
        }
        Some(result)
    }

    /// Records the change of a lane that is not blocked.
    fn record_runnable(&mut self, key: &LaneKey, before: LaneSummary, after: LaneSummary) {
        match (before.needs_refill, after.needs_refill) {
            (false, true) => _ = self.lanes_to_refill.insert(key.clone()),
            (true, false) => _ = self.lanes_to_refill.remove(key),
            _ => {}
        }
        // Jobs without limits are counted by their lanes.
        if !key.limits.is_empty() {
            self.runnable_limited
                .change(&key.handler, before.known, after.known);
        }
    }

    fn reserve_key_memory(&mut self, bytes: usize) -> Option<()> {
        if self.key_memory.reserve(bytes) {
            return Some(());
        }
        if self.limited.len() < RESERVED_KEYS {
            self.key_memory.overdraw(bytes);
            return Some(());
        }
        if self.refusals > 0 {
            self.refusals -= 1;
            return None;
        }
        // The search takes time linear in the number of keys, so it is not done for each new key.
        self.refusals = self.limited.len() / 8;
        let key_memory = &self.key_memory;
        self.limited.retain(|key, group| {
            let idle = group.is_idle();
            if idle {
                key_memory.release(LimitGroup::memory_bytes(key));
            }
            !idle
        });
        self.key_memory.reserve(bytes).then_some(())
    }

    /// Changes every known lane.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&LaneKey, &mut Lane)) {
        for key in self.keys() {
            self.change(&key, |lane| change(&key, lane));
        }
    }

    /// Returns all known lanes.
    pub(super) fn keys(&self) -> Vec<LaneKey> {
        self.groups().flat_map(LimitGroup::lane_keys).collect()
    }

    /// Adds a job. Returns false if it was not kept, or another job was forgotten for it.
    pub(super) fn insert(
        &mut self,
        key: &LaneKey,
        ready_key: ReadyKey,
        local_partitions: &LocalPartitions,
        now: Timestamp,
    ) -> bool {
        // Blocked jobs take no room from runnable ones.
        let (known, lanes) = if self.group(&key.limits).is_some_and(LimitGroup::is_blocked) {
            (
                self.blocked,
                self.limited.len().saturating_sub(self.dispatch_order.len()),
            )
        } else {
            (
                self.runnable(),
                self.dispatch_order.len() + self.unlimited.lanes.len(),
            )
        };
        let max_of_lane = (MAX_KNOWN_JOBS / lanes.max(1)).max(MIN_KNOWN_JOBS_PER_LANE);
        let inserted = self.change(key, |lane| {
            lane.known_jobs.insert(ready_key, local_partitions, now);
            let full = known >= MAX_KNOWN_JOBS && lane.known_jobs.len() > max_of_lane;
            if full && let Some(forgotten) = lane.known_jobs.pop_last() {
                lane.mark_incomplete(forgotten.workflow().partition(), local_partitions);
            }
            !full
        });
        inserted.unwrap_or(false)
    }

    /// Removes a job, if it is known.
    pub(super) fn remove(&mut self, key: &LaneKey, ready_key: &ReadyKey) {
        self.change_lane(key, AbsentLane::Ignore, |lane| {
            lane.known_jobs.remove(ready_key)
        });
    }

    /// Advances the pass of a key after one of its jobs was dequeued, so that other keys go next.
    /// Reverses that after the job was requeued.
    pub(super) fn advance_pass(&mut self, limits: &str, change: PassChange) {
        let clock = self.current_pass;
        let group = if limits.is_empty() {
            Some(&mut self.unlimited)
        } else {
            self.limited.get_mut(limits)
        };
        let Some(group) = group else { return };
        let before = group.pass;
        group.pass = match change {
            PassChange::Dequeued => before.max(clock) + group.stride(),
            PassChange::Requeued => before.saturating_sub(group.stride()),
        };
        if change == PassChange::Dequeued {
            self.current_pass = clock.max(before);
        }
        let was_in_order = (before, Arc::clone(&group.key));
        if !limits.is_empty() && self.dispatch_order.remove(&was_in_order) {
            self.dispatch_order.insert(group.dispatch_entry());
        }
    }

    /// Marks known lanes: the store may have more of their jobs. They are read when the known jobs
    /// are used up.
    pub(super) fn mark_incomplete(&mut self, lanes: &HashSet<LaneKey>) {
        for key in lanes {
            self.change_lane(key, AbsentLane::Ignore, |lane| {
                lane.more_rows = MoreRows::ALL
            });
        }
    }

    /// Sets the weights by which keys take turns from now on.
    pub(super) fn set_weights(&mut self, weights: Arc<Weights>) {
        for group in self.limited.values_mut() {
            group.weight = group
                .limits
                .as_ref()
                .map_or(1, |limits| weights.weight_for(limits));
        }
        self.weights = weights;
    }

    /// Lanes that are not blocked and have no known jobs, while the store may have some.
    pub(super) fn lanes_to_refill(
        &self,
        wants: impl Fn(MoreRows) -> bool,
    ) -> impl Iterator<Item = &LaneKey> {
        let more = |key: &LaneKey| {
            self.group(&key.limits)
                .and_then(|group| group.lanes.get(&key.handler))
                .map(|lane| lane.more_rows)
        };
        self.lanes_to_refill
            .iter()
            .filter(move |key| more(key).is_some_and(&wants))
    }

    pub(super) fn has_lanes_to_refill(&self) -> bool {
        !self.lanes_to_refill.is_empty()
    }

    pub(super) fn forget_all(&mut self) {
        self.change_all(|_, lane| lane.known_jobs = KnownJobs::default());
    }
}

impl Drop for ReadyJobs {
    fn drop(&mut self) {
        self.limited
            .keys()
            .for_each(|key| self.key_memory.release(LimitGroup::memory_bytes(key)));
    }
}

/// Handling of a lane that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AbsentLane {
    Create,
    Ignore,
}

/// Change of a job that moves the pass of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassChange {
    Dequeued,
    /// The job was returned to its queue.
    Requeued,
}
