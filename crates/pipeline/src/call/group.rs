//! One group of a call: what queues and connections hold.

use std::sync::Arc;

use super::{Call, Stage, Timer};
use crate::batch::load::Load;
use crate::call::units::UnitSet;
use crate::outcome::{NotSent, Outcome};

/// One group of a call: what queues and connections hold.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) call: Arc<Call>,
    pub(crate) index: usize,
}

impl Group {
    pub(crate) fn load(&self) -> Load {
        self.units().load
    }

    pub(crate) fn units(&self) -> &UnitSet {
        &self.call.groups[self.index]
    }

    /// Whether the caller has left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.call.progress().abandoned
    }

    /// Tells the caller to set a timer of its own: the group waits, and no connection watches its deadline.
    pub(crate) fn leave_timer_to_caller(&self) {
        let mut progress = self.call.progress();
        if progress.timer == Timer::Connections {
            progress.timer = Timer::Caller;
            progress.wake();
        }
    }

    /// Tells the caller that its deadline has passed.
    pub(crate) fn expire(&self) {
        let mut progress = self.call.progress();
        progress.timer = Timer::Expired;
        progress.wake();
    }

    /// Marks the group as handed to a connection. False when the caller has left: then nothing may be written.
    pub(crate) fn start(&self) -> bool {
        let mut progress = self.call.progress();
        if progress.abandoned {
            return false;
        }
        progress.stages[self.index] = Stage::Sent;
        true
    }

    /// Hands in the outcomes, one per command. Wakes the caller when it waits for no other group.
    pub(crate) fn finish(self, outcomes: Vec<Outcome>) {
        let mut progress = self.call.progress();
        if progress.abandoned {
            return;
        }
        progress.stages[self.index] = Stage::Done(outcomes);
        progress.done += 1;
        if progress.done >= progress.wake_at
            && let Some(waker) = progress.waker.take()
        {
            drop(progress);
            waker.wake();
        }
    }

    /// Finishes the group as never sent.
    pub(crate) fn refuse(self, reason: NotSent) {
        let outcomes = vec![Outcome::NotSent(reason); self.load().commands];
        self.finish(outcomes);
    }
}
