//! Keys that are blocked by a limit without capacity.

use std::sync::Arc;

use hashbrown::HashSet;

use super::{LaneKey, LimitGroup, MAX_KNOWN_JOBS, MIN_KNOWN_JOBS_PER_LANE, ReadyJobs};
use crate::queue::{LocalPartitions, UnblockPosition};

impl ReadyJobs {
    /// Blocks a key: its jobs wait for capacity under a limit.
    pub(in crate::queue) fn block(
        &mut self,
        key: &str,
        limit: &Arc<str>,
        local_partitions: &LocalPartitions,
    ) {
        let Some(group) = self.limited.get_mut(key) else {
            return;
        };
        self.dispatch_order.remove(&group.dispatch_entry());
        let was_runnable = group.blocked_by.replace(Arc::clone(limit)).is_none();
        if was_runnable {
            self.blocked += group.known;
            for (handler, lane) in &group.lanes {
                self.runnable_limited
                    .change(handler, lane.known_jobs.len(), 0);
            }
        }
        let lanes: Vec<LaneKey> = group.lane_keys().collect();
        for key in lanes {
            self.lanes_to_refill.remove(&key);
            if self.blocked > MAX_KNOWN_JOBS {
                self.change(&key, |lane| {
                    lane.forget_after(MIN_KNOWN_JOBS_PER_LANE, local_partitions)
                });
            }
        }
    }

    /// Returns the lanes whose jobs are blocked by a limit.
    pub(in crate::queue) fn blocked_lanes(&self) -> HashSet<LaneKey> {
        let blocked = self.limited.values().filter(|group| group.is_blocked());
        blocked.flat_map(LimitGroup::lane_keys).collect()
    }

    /// Unblocks a key. Returns the number of its known jobs.
    pub(in crate::queue) fn unblock(&mut self, key: &str, position: UnblockPosition) -> usize {
        let group = self.limited.get_mut(key);
        let Some(group) = group.filter(|group| group.limits.is_some()) else {
            return 0;
        };
        let known = group.known;
        if group.blocked_by.take().is_none() {
            return known;
        }
        self.blocked -= known;
        group.pass = match position {
            UnblockPosition::First => self.current_pass.saturating_sub(1),
            UnblockPosition::Last => group.pass.max(self.current_pass + group.stride()),
        };
        if group.is_dispatchable() {
            self.dispatch_order.insert(group.dispatch_entry());
        }
        for (handler, lane) in &group.lanes {
            let lane = lane.summary();
            self.runnable_limited.change(handler, 0, lane.known);
            if lane.needs_refill {
                self.lanes_to_refill.insert(group.lane_key(handler));
            }
        }
        known
    }
}
