//! The ready jobs of one queue under one key of limits, by handler.

use std::sync::Arc;

use hashbrown::HashMap;

use super::LaneKey;
use crate::engine::limits::name_of;
use crate::engine::queues::lane::Lane;
use crate::engine::queues::weights::Weights;
use crate::graph::limits::Limits;

/// Distance by which a dispatched job advances the pass of a key of weight 1.
const STRIDE: u64 = 1 << 20;
/// Memory of a key without its text, in bytes. The text is kept three times: for the dispatch
/// order, the limits and the lanes.
const AROUND_KEY: usize = 768;

/// The jobs under one key of limits.
#[derive(Debug)]
pub(in crate::engine::queues) struct Group {
    pub(in crate::engine::queues) key: Arc<str>,
    /// `None` without limits, or if this version cannot parse them.
    pub(in crate::engine::queues) limits: Option<Arc<Limits>>,
    /// Names of these limits.
    pub(in crate::engine::queues) names: Box<[Arc<str>]>,
    pub(in crate::engine::queues) lanes: HashMap<Arc<str>, Lane>,
    /// Position in the dispatch order.
    pub(super) pass: u64,
    pub(super) weight: u32,
    /// The limit without capacity that blocks the jobs.
    pub(in crate::engine::queues) closed: Option<Arc<str>>,
    /// Number of known jobs.
    pub(super) known: usize,
}

impl Group {
    pub(super) fn new(key: Arc<str>, weights: &Weights) -> Self {
        let limits = if key.is_empty() {
            None
        } else {
            Limits::read(&key).map(Arc::new)
        };
        // Jobs under limits that this version cannot parse are left to servers that can.
        let closed = (limits.is_none() && !key.is_empty()).then(|| Arc::clone(&key));
        let weight = limits.as_ref().map_or(1, |limits| weights.of(limits));
        let names = limits
            .iter()
            .flat_map(|limits| limits.each())
            .map(name_of)
            .collect();
        Self {
            key,
            limits,
            names,
            lanes: HashMap::new(),
            pass: 0,
            weight,
            closed,
            known: 0,
        }
    }

    pub(super) fn bytes(key: &str) -> usize {
        AROUND_KEY + 3 * key.len()
    }

    pub(in crate::engine::queues) fn known(&self) -> usize {
        self.known
    }

    pub(in crate::engine::queues) fn pass(&self) -> u64 {
        self.pass
    }

    pub(in crate::engine::queues) fn stride(&self) -> u64 {
        STRIDE / u64::from(self.weight)
    }

    pub(super) fn is_active(&self) -> bool {
        self.known > 0 && self.closed.is_none()
    }

    pub(in crate::engine::queues) fn lane_keys(&self) -> impl Iterator<Item = (LaneKey, &Lane)> {
        let key = |handler| LaneKey {
            limits: Arc::clone(&self.key),
            handler: Arc::clone(handler),
        };
        self.lanes
            .iter()
            .map(move |(handler, lane)| (key(handler), lane))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.known == 0 && self.closed.is_none() && self.lanes.values().all(|lane| !lane.more.any())
    }
}
