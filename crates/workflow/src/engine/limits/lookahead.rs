//! Probes the limits of the next keys after others were exhausted. Windows of rate limits end at
//! the same time, and a claim must not probe the keys one after the other.

use std::sync::Arc;

use super::charge::rate_limit_block;
use super::unit_counter::UnitRequest;
use crate::engine::{CallClock, Engine};
use crate::queue::blocked_limits::limit_names::limit_name;

/// Maximum number of keys that one call probes.
const MAX_KEYS: usize = 512;

impl Engine {
    /// Blocks exhausted rate limits of the next keys of these queues; the number of keys doubles
    /// each time. Acquires nothing.
    pub(in crate::engine) async fn block_next_keys(
        &self,
        queues: &[String],
        round: usize,
        clock: CallClock,
    ) {
        let Some(counter) = self.unit_counter() else {
            return;
        };
        let release_count = self.queues().return_count();
        let next = self
            .queues()
            .next_limited(queues, MAX_KEYS.min(4 << round.min(16)));
        if next.is_empty() {
            return;
        }
        let requests = next.iter().map(|(_, _, limits)| UnitRequest {
            limits: Arc::clone(limits),
            jobs: 0,
        });
        let requested_at = clock.now();
        let grants = counter.acquire(requests.collect()).await;
        for ((queue, lane, limits), granted) in next.iter().zip(grants) {
            if let Some(exhausted) = granted.exhausted
                && let Some(limit) = limits.as_slice().get(exhausted.limit_index)
            {
                let block = rate_limit_block(exhausted, requested_at);
                self.queues()
                    .block((queue, lane), &limit_name(limit), block, release_count);
            }
        }
    }
}
