//! The groups that no connection has room for, oldest first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::batch::load::Load;
use crate::call::group::Group;

/// Groups that wait for a connection, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    load: Load,
}

#[derive(Debug)]
struct Waiting {
    group: Group,
    since: Instant,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the load of all groups.
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Returns the load of the next group.
    pub(crate) fn head(&self) -> Option<Load> {
        self.waiting.front().map(|head| head.group.load())
    }

    /// Returns how long the next group has waited.
    pub(crate) fn head_age(&self) -> Duration {
        self.waiting
            .front()
            .map_or(Duration::ZERO, |head| head.since.elapsed())
    }

    pub(crate) fn push(&mut self, group: Group) {
        group.leave_timer_to_caller();
        self.load.add(group.load());
        self.waiting.push_back(Waiting {
            group,
            since: Instant::now(),
        });
    }

    pub(crate) fn pop(&mut self) -> Option<Group> {
        let head = self.waiting.pop_front()?;
        self.load.remove(head.group.load());
        Some(head.group)
    }

    /// Puts groups at the head that a connection had not taken: they have waited longest.
    pub(crate) fn put_back(&mut self, groups: VecDeque<Group>) {
        let since = Instant::now();
        for group in groups.into_iter().rev() {
            group.leave_timer_to_caller();
            self.load.add(group.load());
            self.waiting.push_front(Waiting { group, since });
        }
    }

    /// Drops the next group if its caller has left. Returns whether it did.
    pub(crate) fn drop_abandoned(&mut self) -> bool {
        let is_abandoned = self
            .waiting
            .front()
            .is_some_and(|head| head.group.is_abandoned());
        is_abandoned && self.pop().is_some()
    }

    /// Removes and returns all groups.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Group> + use<> {
        self.load = Load::default();
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|waiting| waiting.group)
    }
}
