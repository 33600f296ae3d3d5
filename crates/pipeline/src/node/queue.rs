//! The groups that no connection has room for, oldest first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::batch::Load;
use crate::call::CallGroup;

/// Groups that wait for a connection, oldest first.
#[derive(Debug, Default)]
pub(crate) struct GroupQueue {
    groups: VecDeque<QueuedGroup>,
    load: Load,
}

#[derive(Debug)]
struct QueuedGroup {
    group: CallGroup,
    queued_at: Instant,
}

impl GroupQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the load of all groups.
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Returns the load of the next group.
    pub(crate) fn head(&self) -> Option<Load> {
        self.groups.front().map(|head| head.group.load())
    }

    /// Returns how long the next group has waited.
    pub(crate) fn head_age(&self) -> Duration {
        self.groups
            .front()
            .map_or(Duration::ZERO, |head| head.queued_at.elapsed())
    }

    pub(crate) fn push(&mut self, group: CallGroup) {
        group.leave_timer_to_caller();
        self.load.add(group.load());
        self.groups.push_back(QueuedGroup {
            group,
            queued_at: Instant::now(),
        });
    }

    pub(crate) fn pop(&mut self) -> Option<CallGroup> {
        let head = self.groups.pop_front()?;
        self.load.remove(head.group.load());
        Some(head.group)
    }

    /// Puts groups at the head that a connection had not taken: they have waited longest.
    pub(crate) fn requeue(&mut self, groups: VecDeque<CallGroup>) {
        let queued_at = Instant::now();
        for group in groups.into_iter().rev() {
            group.leave_timer_to_caller();
            self.load.add(group.load());
            self.groups.push_front(QueuedGroup { group, queued_at });
        }
    }

    /// Drops the next group if its caller has left. Returns whether it did.
    pub(crate) fn drop_abandoned(&mut self) -> bool {
        let is_abandoned = self
            .groups
            .front()
            .is_some_and(|head| head.group.is_abandoned());
        is_abandoned && self.pop().is_some()
    }

    /// Removes and returns all groups.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = CallGroup> + use<> {
        self.load = Load::default();
        std::mem::take(&mut self.groups)
            .into_iter()
            .map(|waiting| waiting.group)
    }
}
