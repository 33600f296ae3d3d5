//! Probes the limits of the next keys after others were exhausted. Windows of rate limits end at
//! the same time, and a claim must not probe the keys one after the other.

use std::sync::Arc;

use super::charge::without_units;
use super::name_of;
use super::unit_counter::UnitRequest;
use crate::engine::Engine;
use crate::engine::claim::call_clock::CallClock;

/// Maximum number of keys that one call probes.
const MOST: usize = 512;

impl Engine {
    /// Blocks exhausted rate limits of the next keys of these queues; the number of keys doubles
    /// each time. Acquires nothing.
    pub(in crate::engine) async fn block_next_keys(
        &self,
        queues: &[String],
        times: usize,
        told: CallClock,
    ) {
        let Some(units) = self.units() else { return };
        let asked = self.queues().returned();
        let next = self
            .queues()
            .next_limited(queues, MOST.min(4 << times.min(16)));
        if next.is_empty() {
            return;
        }
        let wanted = next.iter().map(|(_, _, limits)| UnitRequest {
            limits: Arc::clone(limits),
            jobs: 0,
        });
        let asking = told.now();
        let looked = units.acquire(wanted.collect()).await;
        for ((queue, lane, limits), granted) in next.iter().zip(looked) {
            if let Some(no_room) = granted.no_room
                && let Some(limit) = limits.each().get(no_room.limit)
            {
                let closing = without_units(no_room, asking);
                self.queues()
                    .block((queue, lane), &name_of(limit), closing, asked);
            }
        }
    }
}
