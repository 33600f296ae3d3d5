//! Limits without capacity: their jobs wait here, and no claim asks the limiter again until a limit
//! may have capacity.

use std::sync::Arc;

use hashbrown::HashSet;

use super::{LimitBlock, UnblockedLimit};
use crate::graph::Limits;
use crate::model::Timestamp;
use crate::queue::{LaneKey, QueueCache, RefillTarget};

impl QueueCache {
    /// Number of returned units so far, for [`QueueCache::block`].
    pub(crate) fn return_count(&self) -> u64 {
        self.blocked_limits().return_count()
    }

    /// Blocks a limit that had no capacity when the limiter was queried, unless a unit returned
    /// after `as_of`. Jobs with this key are parked. Keys under the same limit are parked when a
    /// claim reaches them.
    pub(crate) fn block(
        &self,
        (queue, lane): (&Arc<str>, &LaneKey),
        limit: &Arc<str>,
        block: LimitBlock,
        as_of: u64,
    ) {
        let mut by_name = self.lock();
        let mut blocked_limits = self.blocked_limits();
        if !blocked_limits.block(limit, block, as_of) {
            return;
        }
        if let Some(known) = by_name.get_mut(&**queue) {
            known
                .ready_jobs
                .block(&lane.limits, limit, &self.local_partitions);
            blocked_limits.park(limit, (Arc::clone(queue), Arc::clone(&lane.limits)));
        }
        drop((by_name, blocked_limits));
        self.limit_blocked.notify_one();
    }

    /// Returns the first keys of these queues that are not blocked: at most `limit`, in dispatch
    /// order.
    pub(crate) fn next_limited(
        &self,
        names: &[String],
        limit: usize,
    ) -> Vec<(Arc<str>, LaneKey, Arc<Limits>)> {
        let by_name = self.lock();
        let blocked_limits = self.blocked_limits();
        let mut next = Vec::new();
        for name in names {
            let Some(queue) = by_name.get(name.as_str()).filter(|queue| !queue.paused) else {
                continue;
            };
            let name: Arc<str> = name.as_str().into();
            let runnable = queue
                .ready_jobs
                .groups_in_order()
                .filter(|group| blocked_limits.first_blocked(&group.limit_names).is_none());
            let keys = runnable.filter_map(|group| {
                Some((
                    group.lane_keys().next()?,
                    Arc::clone(group.limits.as_ref()?),
                ))
            });
            next.extend(
                keys.take(limit - next.len())
                    .map(|(lane, limits)| (Arc::clone(&name), lane, limits)),
            );
        }
        next
    }

    /// Returns the blocked lanes of each queue of which all lanes are to be read.
    pub(crate) fn blocked_lanes(&self, queues: &[RefillTarget]) -> Vec<HashSet<LaneKey>> {
        let by_name = self.lock();
        let blocked = |to_read: &RefillTarget| match to_read.lanes {
            None => by_name
                .get(&*to_read.queue)
                .map(|queue| queue.ready_jobs.blocked_lanes())
                .unwrap_or_default(),
            Some(_) => HashSet::new(),
        };
        queues.iter().map(blocked).collect()
    }

    /// Unblocks a limit to which a unit returned, or which may have capacity for another reason.
    pub(crate) fn unblock(&self, limit: &str) {
        let opened = self.blocked_limits().unblock(limit);
        self.unblock_parked(opened, |_| 1);
    }

    /// Unblocks all limits: units may have returned to any of them.
    pub(crate) fn unblock_all(&self) {
        let all = self.blocked_limits().unblock_all();
        self.unblock_parked(all, |_| 1);
    }

    /// Unblocks all limits on concurrency: permits may have been freed under any of them.
    pub(crate) fn unblock_concurrency_limits(&self) {
        let sets = self.blocked_limits().unblock_concurrency_limits();
        self.unblock_parked(sets, |_| 1);
    }

    /// Unblocks the limits whose time has come.
    pub(crate) fn unblock_due(&self, now: Timestamp) {
        self.advance(now);
        loop {
            let unblocked = self.blocked_limits().unblock_due(now);
            if unblocked.is_empty() {
                return;
            }
            self.unblock_parked(unblocked, |block| block.capacity.unwrap_or(usize::MAX));
        }
    }

    /// Unblocks keys, and wakes at most as many workers for each limit as it has capacity for jobs.
    /// All keys are unblocked before the first worker claims.
    fn unblock_parked(
        &self,
        unblocked: Vec<UnblockedLimit>,
        capacity: impl Fn(&LimitBlock) -> usize,
    ) {
        let mut by_name = self.lock();
        let mut woken = Vec::new();
        for UnblockedLimit {
            block,
            parked,
            position,
        } in unblocked
        {
            for (queue, key) in parked {
                let Some(found) = by_name.get_mut(&*queue) else {
                    continue;
                };
                woken.push((
                    found
                        .ready_jobs
                        .unblock(&key, position)
                        .min(capacity(&block)),
                    queue,
                ));
            }
        }
        for (number, queue) in woken {
            if let Some(queue) = by_name.get_mut(&*queue).filter(|queue| !queue.paused) {
                queue.wake_some(number);
            }
        }
    }

    /// Wakes one worker that waits for these queues, if they have runnable jobs.
    pub(crate) fn wake_next_claim(&self, names: &[String]) {
        let mut by_name = self.lock();
        for name in names {
            if let Some(queue) = by_name.get_mut(name.as_str())
                && !queue.paused
                && queue.wake_one()
            {
                return;
            }
        }
    }

    /// Time at which [`QueueCache::unblock_due`] has something to do.
    pub(crate) fn next_unblock(&self) -> Option<Timestamp> {
        self.blocked_limits().next_due()
    }

    /// Time at which the first limit has capacity because its window ends.
    pub(crate) fn next_window_end(&self) -> Option<Timestamp> {
        self.blocked_limits().next_window_end()
    }

    /// Waits until [`QueueCache::next_unblock`] may have become earlier. Only one task at a time
    /// may wait.
    pub(crate) async fn wait_for_block(&self) {
        self.limit_blocked.notified().await;
    }
}
