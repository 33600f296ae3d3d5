//! The ready jobs of one queue under one key of limits, by handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use hashbrown::HashMap;

use super::lane::{Lane, LaneSummary};
use super::{AbsentLane, LaneKey};
use crate::graph::Limits;
use crate::queue::blocked_limits::limit_names::limit_name;
use crate::queue::scheduler::weights::Weights;

/// Distance by which a dispatched job advances the pass of a key of weight 1.
const UNIT_STRIDE: u64 = 1 << 20;
/// Memory of a key without its text, in bytes. The text is kept three times: for the dispatch
/// order, the limits and the lanes.
const KEY_OVERHEAD_BYTES: usize = 768;

/// The jobs under one key of limits.
#[derive(Debug)]
pub(crate) struct LimitGroup {
    pub(crate) key: Arc<str>,
    /// `None` without limits, or if this version cannot parse them.
    pub(crate) limits: Option<Arc<Limits>>,
    /// Names of these limits.
    pub(crate) limit_names: Box<[Arc<str>]>,
    pub(crate) lanes: HashMap<Arc<str>, Lane>,
    /// Position in the dispatch order.
    pub(super) pass: u64,
    pub(super) weight: u32,
    /// The limit without capacity that blocks the jobs.
    pub(crate) blocked_by: Option<Arc<str>>,
    /// Number of known jobs.
    pub(super) known: usize,
}

impl LimitGroup {
    pub(super) fn new(key: Arc<str>, weights: &Weights) -> Self {
        let limits = if key.is_empty() {
            None
        } else {
            Limits::parse(&key).map(Arc::new)
        };
        // Jobs under limits that this version cannot parse are left to servers that can.
        let blocked_by = (limits.is_none() && !key.is_empty()).then(|| Arc::clone(&key));
        let weight = limits
            .as_ref()
            .map_or(1, |limits| weights.weight_for(limits));
        let limit_names = limits
            .iter()
            .flat_map(|limits| limits.as_slice())
            .map(limit_name)
            .collect();
        Self {
            key,
            limits,
            limit_names,
            lanes: HashMap::new(),
            pass: 0,
            weight,
            blocked_by,
            known: 0,
        }
    }

    pub(super) fn memory_bytes(key: &str) -> usize {
        KEY_OVERHEAD_BYTES + 3 * key.len()
    }

    pub(crate) fn known(&self) -> usize {
        self.known
    }

    pub(crate) fn pass(&self) -> u64 {
        self.pass
    }

    pub(crate) fn stride(&self) -> u64 {
        UNIT_STRIDE / u64::from(self.weight)
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_by.is_some()
    }

    pub(super) fn is_dispatchable(&self) -> bool {
        self.known > 0 && !self.is_blocked()
    }

    /// The entry of the group in the dispatch order.
    pub(super) fn dispatch_entry(&self) -> (u64, Arc<str>) {
        (self.pass, Arc::clone(&self.key))
    }

    /// Changes a lane, and drops it if it is idle then. Returns the result of the change, and the
    /// lane before and after it.
    pub(super) fn change_lane<T>(
        &mut self,
        handler: &Arc<str>,
        absent: AbsentLane,
        change: impl FnOnce(&mut Lane) -> T,
    ) -> Option<(T, LaneSummary, LaneSummary)> {
        let lane = match self.lanes.get_mut(handler) {
            Some(lane) => lane,
            None if absent == AbsentLane::Ignore => return None,
            None => self.lanes.entry(Arc::clone(handler)).or_default(),
        };
        let before = lane.summary();
        let result = change(lane);
        let after = lane.summary();
        if lane.is_idle() {
            self.lanes.remove(handler);
        }
        self.known = self.known + after.known - before.known;
        Some((result, before, after))
    }

    pub(super) fn lane_key(&self, handler: &Arc<str>) -> LaneKey {
        LaneKey {
            limits: Arc::clone(&self.key),
            handler: Arc::clone(handler),
        }
    }

    pub(crate) fn lane_keys(&self) -> impl Iterator<Item = LaneKey> {
        self.lanes.keys().map(|handler| self.lane_key(handler))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.known == 0
            && !self.is_blocked()
            && self.lanes.values().all(|lane| !lane.more_rows.any())
    }
}

/// Remaining memory for the keys of all queues, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct KeyMemory(Arc<AtomicI64>);

impl KeyMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new((bytes as i64).into()))
    }

    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let rest = |left: i64| Some(left - bytes as i64).filter(|left| *left >= 0);
        self.0.fetch_update(Relaxed, Relaxed, rest).is_ok()
    }

    /// Reserves memory beyond the bound.
    pub(super) fn overdraw(&self, bytes: usize) {
        self.0.fetch_sub(bytes as i64, Relaxed);
    }

    pub(super) fn release(&self, bytes: usize) {
        self.0.fetch_add(bytes as i64, Relaxed);
    }
}
