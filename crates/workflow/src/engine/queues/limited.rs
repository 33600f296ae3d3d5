//! Limits without room: jobs under them wait here, and nobody asks for units until there may be some again.

use std::sync::Arc;

use hashbrown::HashSet;

use super::blocked_limits::{LimitBlock, Opened};
use super::ready_jobs::LaneKey;
use super::{QueueCache, RefillTarget};
use crate::graph::limits::Limits;
use crate::time::Timestamp;

impl QueueCache {
    /// A number to be given to [`QueueCache::block`]: units that return from now on count.
    pub(crate) fn returned(&self) -> u64 {
        self.closings().returned()
    }

    /// A limit has no room, as an answer says that was asked for after `asked`. Jobs with this key wait for it; those of other keys under the same limit do, too, when they are looked at.
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

    /// The first keys of these queues whose jobs may be taken now, if there is room: at most so many, in the order in which they take turns.
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

    /// For each queue of which all lanes are to be read, those without room under a limit.
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

    /// A unit returned to a limit, or it may have room for another reason: jobs that wait for it may be taken.
    pub(crate) fn unblock(&self, limit: &str) {
        let opened = self.closings().unblock(limit);
        self.open_parked(opened, |_| 1);
    }

    /// Units may have returned to any limit.
    pub(crate) fn open_all(&self) {
        let all = self.closings().open_all();
        self.open_parked(all, |_| 1);
    }

    /// Places may have been freed in any set.
    pub(crate) fn open_sets(&self) {
        let sets = self.closings().open_sets();
        self.open_parked(sets, |_| 1);
    }

    /// Opens the limits whose time has come.
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

    /// Opens keys, and wakes at most as many workers for each limit as it has room for jobs. All are open before the first worker looks.
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

    /// Wakes one of those who wait for these queues, if there are jobs that may have room.
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

    /// When [`QueueCache::open_due`] has something to do.
    pub(crate) fn next_opening(&self) -> Option<Timestamp> {
        self.closings().next()
    }

    /// When the first limit has room by the passing of time alone.
    pub(crate) fn next_turn(&self) -> Option<Timestamp> {
        self.closings().next_turn()
    }

    /// Returns when [`QueueCache::next_opening`] may have become earlier. Only one task at a time may wait.
    pub(crate) async fn closed(&self) {
        self.closed.notified().await;
    }
}
