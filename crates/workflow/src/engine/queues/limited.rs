//! Limits without capacity: their jobs wait here, and no claim asks the limiter again until a limit
//! may have capacity.

use std::sync::Arc;

use hashbrown::HashSet;

use super::blocked_limits::{LimitBlock, Opened};
use super::ready_jobs::LaneKey;
use super::{QueueCache, RefillTarget};
use crate::graph::limits::Limits;
use crate::time::Timestamp;

impl QueueCache {
    /// Number of returned units so far, for [`QueueCache::block`].
    pub(crate) fn returned(&self) -> u64 {
        self.closings().returned()
    }

    /// Blocks a limit that had no capacity when the limiter was queried, unless a unit returned
    /// after `as_of`. Jobs with this key are parked. Keys under the same limit are parked when a
    /// claim reaches them.
    pub(crate) fn block(
        &self,
        (queue, lane): (&Arc<str>, &LaneKey),
        limit: &Arc<str>,
        closing: LimitBlock,
        asked: u64,
    ) {
        let mut each = self.lock();
        let mut closings = self.closings();
        if !closings.block(limit, closing, asked) {
            return;
        }
        if let Some(known) = each.get_mut(&**queue) {
            known.lanes.close(&lane.limits, limit, &self.mine);
            closings.park(limit, (Arc::clone(queue), Arc::clone(&lane.limits)));
        }
        drop((each, closings));
        self.closed.notify_one();
    }

    /// Returns the first keys of these queues that are not blocked: at most `limit`, in dispatch
    /// order.
    pub(crate) fn next_limited(
        &self,
        names: &[String],
        most: usize,
    ) -> Vec<(Arc<str>, LaneKey, Arc<Limits>)> {
        let each = self.lock();
        let closings = self.closings();
        let mut next = Vec::new();
        for name in names {
            let Some(queue) = each.get(name.as_str()).filter(|queue| !queue.paused) else {
                continue;
            };
            let name: Arc<str> = name.as_str().into();
            let open = queue
                .lanes
                .in_order()
                .filter(|group| closings.closes(&group.names).is_none());
            let keys = open.filter_map(|group| {
                Some((
                    group.lane_keys().next()?.0,
                    Arc::clone(group.limits.as_ref()?),
                ))
            });
            next.extend(
                keys.take(most - next.len())
                    .map(|(lane, limits)| (Arc::clone(&name), lane, limits)),
            );
        }
        next
    }

    /// Returns the blocked lanes of each queue of which all lanes are to be read.
    pub(crate) fn closed_lanes(&self, queues: &[RefillTarget]) -> Vec<HashSet<LaneKey>> {
        let each = self.lock();
        let of = |to_read: &RefillTarget| match to_read.lanes {
            None => each
                .get(&*to_read.queue)
                .map(|queue| queue.lanes.closed_lanes())
                .unwrap_or_default(),
            Some(_) => HashSet::new(),
        };
        queues.iter().map(of).collect()
    }

    /// Unblocks a limit to which a unit returned, or which may have capacity for another reason.
    pub(crate) fn unblock(&self, limit: &str) {
        let opened = self.closings().unblock(limit);
        self.open_parked(opened, |_| 1);
    }

    /// Unblocks all limits: units may have returned to any of them.
    pub(crate) fn open_all(&self) {
        let all = self.closings().open_all();
        self.open_parked(all, |_| 1);
    }

    /// Unblocks all limits on concurrency: permits may have been freed under any of them.
    pub(crate) fn open_sets(&self) {
        let sets = self.closings().open_sets();
        self.open_parked(sets, |_| 1);
    }

    /// Unblocks the limits whose time has come.
    pub(crate) fn open_due(&self, now: Timestamp) {
        self.advance(now);
        loop {
            let opened = self.closings().next_open(now);
            if opened.is_empty() {
                return;
            }
            self.open_parked(opened, |closing| closing.room.unwrap_or(usize::MAX));
        }
    }

    /// Unblocks keys, and wakes at most as many workers for each limit as it has capacity for jobs.
    /// All keys are unblocked before the first worker claims.
    fn open_parked(&self, opened: Vec<Opened>, room: impl Fn(&LimitBlock) -> usize) {
        let mut each = self.lock();
        let mut known = Vec::new();
        for Opened {
            closing,
            parked,
            place,
        } in opened
        {
            for (queue, key) in parked {
                let Some(found) = each.get_mut(&*queue) else {
                    continue;
                };
                known.push((
                    found.lanes.open_again(&key, place).min(room(&closing)),
                    queue,
                ));
            }
        }
        for (number, queue) in known {
            if let Some(queue) = each.get_mut(&*queue).filter(|queue| !queue.paused) {
                queue.wake_some(number);
            }
        }
    }

    /// Wakes one worker that waits for these queues, if they have runnable jobs.
    pub(crate) fn pass_on(&self, names: &[String]) {
        let mut each = self.lock();
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str())
                && !queue.paused
                && queue.wake_one()
            {
                return;
            }
        }
    }

    /// Time at which [`QueueCache::unblock_due`] has something to do.
    pub(crate) fn next_opening(&self) -> Option<Timestamp> {
        self.closings().next()
    }

    /// Time at which the first limit has capacity because its window ends.
    pub(crate) fn next_turn(&self) -> Option<Timestamp> {
        self.closings().next_turn()
    }

    /// Waits until [`QueueCache::next_unblock`] may have become earlier. Only one task at a time
    /// may wait.
    pub(crate) async fn closed(&self) {
        self.closed.notified().await;
    }
}
