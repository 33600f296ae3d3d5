//! The ready jobs of one queue that have one key of limits, by handler.

use std::sync::Arc;

use hashbrown::HashMap;

use super::LaneKey;
use crate::engine::limits::name_of;
use crate::engine::queues::lane::Lane;
use crate::engine::queues::weights::Weights;
use crate::graph::limits::Limits;

/// How far a key of weight 1 moves on with each job.
const STRIDE: u64 = 1 << 20;
/// What a key takes in memory besides its text, which is there three times: for its order, its limits and its lanes.
const AROUND_KEY: usize = 768;

/// The jobs with one key of limits.
#[derive(Debug)]
pub(in crate::engine::queues) struct Group {
    pub(in crate::engine::queues) key: Arc<str>,
    /// None: no limits, or such as this program cannot read.
    pub(in crate::engine::queues) limits: Option<Arc<Limits>>,
    /// The names of these limits.
    pub(in crate::engine::queues) names: Box<[Arc<str>]>,
    pub(in crate::engine::queues) lanes: HashMap<Arc<str>, Lane>,
    /// Its place in the order.
    pub(super) pass: u64,
    pub(super) weight: u32,
    /// The limit without room for which its jobs wait.
    pub(in crate::engine::queues) closed: Option<Arc<str>>,
    /// How many jobs are known.
    pub(super) known: usize,
}

impl Group {
    pub(super) fn new(key: Arc<str>, weights: &Weights) -> Self {
        let limits = if key.is_empty() {
            None
        } else {
            Limits::read(&key).map(Arc::new)
        };
        // Jobs under limits that this program cannot read wait for one that can.
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
