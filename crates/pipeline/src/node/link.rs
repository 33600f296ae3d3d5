//! The node's side of one connection.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::GroupQueue;
use crate::batch::Load;
use crate::call::CallGroup;
use crate::link::state;
use crate::link::{CloseReason, LinkEffect, LinkEvent, LinkId, LinkReport, LinkState};
use crate::node::selection;

/// The node's side of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    state: LinkState,
    /// Groups that the connection has not taken yet. They count in `load`.
    pub(crate) queue: VecDeque<CallGroup>,
    /// Load that is queued or in flight.
    pub(crate) load: Load,
    pub(crate) waker: Option<Waker>,
    /// Time at which the oldest command in flight was written.
    pub(crate) oldest: Option<Instant>,
    /// Recent mean time between a write and its last reply.
    pub(crate) reply_time: Duration,
    pub(crate) opened: Instant,
}

impl Link {
    pub(crate) fn new(id: LinkId) -> Self {
        Self {
            id,
            state: LinkState::Serving,
            queue: VecDeque::new(),
            load: Load::default(),
            waker: None,
            oldest: None,
            reply_time: Duration::ZERO,
            opened: Instant::now(),
        }
    }

    /// Applies an event to the state of the link, and returns the reaction.
    #[inline]
    pub(crate) fn apply(&mut self, event: LinkEvent) -> LinkEffect {
        let (state, effect) = state::next_state(self.state, event);
        self.state = state;
        effect
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.state == LinkState::Serving
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.state == LinkState::Silent
    }

    /// Removes and returns the groups that the connection has not taken.
    pub(crate) fn empty_queue(&mut self) -> VecDeque<CallGroup> {
        let queue = std::mem::take(&mut self.queue);
        queue
            .iter()
            .for_each(|group| self.load.remove(group.load()));
        queue
    }

    /// Returns the expected reply time: the recent mean, or the age of the oldest command if that
    /// is longer.
    pub(crate) fn expected_reply_time(&self) -> Duration {
        self.reply_time.max(
            self.oldest
                .map_or(Duration::ZERO, |oldest| oldest.elapsed()),
        )
    }

    /// Returns whether the link may take `more` within `cap`.
    pub(crate) fn accepts(&self, more: Load, cap: Load) -> bool {
        self.is_serving() && selection::accepts(self.load, more, cap)
    }

    pub(crate) fn push(&mut self, group: CallGroup, load: Load) {
        self.load.add(load);
        self.queue.push_back(group);
        // A non-empty queue has woken its connection already.
        if self.queue.len() == 1 {
            self.wake();
        }
    }

    /// Applies a report of the connection, and moves the queue into `groups`.
    #[inline]
    pub(crate) fn on_report(
        &mut self,
        report: &LinkReport<'_>,
        groups: &mut Vec<CallGroup>,
    ) -> Result<(), CloseReason> {
        self.load.remove(report.released);
        self.oldest = report.oldest;
        self.reply_time = report.reply_time;
        match &mut self.waker {
            Some(waker) => waker.clone_from(report.waker),
            none => *none = Some(report.waker.clone()),
        }
        let event = if self.load == Load::default() {
            LinkEvent::TurnWithoutLoad
        } else {
            LinkEvent::TurnWithLoad
        };
        if let LinkEffect::Close(reason) = self.apply(event) {
            return Err(reason);
        }
        // Most turns find an empty queue, and draining one has a cost.
        if !self.queue.is_empty() {
            groups.extend(self.queue.drain(..));
        }
        Ok(())
    }

    /// Takes as many of the waiting groups as fit.
    pub(crate) fn take_waiting(
        &mut self,
        waiting: &mut GroupQueue,
        cap: Load,
        groups: &mut Vec<CallGroup>,
    ) {
        while let Some(load) = waiting.head() {
            if !self.accepts(load, cap) {
                return;
            }
            self.load.add(load);
            groups.extend(waiting.pop());
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}
