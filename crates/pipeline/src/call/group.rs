//! One group of a call: what queues and connections hold.

use std::sync::Arc;

use super::{Call, Stage, Timer, Written};
use crate::batch::load::Load;
use crate::call::units::UnitSet;
use crate::outcome::{NotSent, Outcome};

/// One group of a call: what queues and connections hold.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) call: Arc<Call>,
    pub(crate) index: usize,
    /// Its outcomes were handed in.
    ended: bool,
}

impl Group {
    pub(crate) fn new(call: &Arc<Call>, index: usize) -> Self {
        Self { call: Arc::clone(call), index, ended: false }
    }

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
    pub(crate) fn finish(mut self, outcomes: Vec<Outcome>) {
        self.end(|_| Stage::Done(outcomes));
    }

    #[inline]
    fn end(&mut self, last: impl FnOnce(&Stage) -> Stage) {
        self.ended = true;
        let mut progress = self.call.progress();
        if progress.abandoned {
            return;
        }
        let stage = &mut progress.stages[self.index];
        *stage = last(stage);
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

impl Drop for Group {
    /// A group that is dropped without its outcomes, as by a panic, must not leave its caller waiting: nobody else would end
    /// the wait.
    fn drop(&mut self) {
        if !self.ended {
            self.end(|stage| match stage {
                Stage::Sent => Stage::Dropped(Written::Perhaps),
                _ => Stage::Dropped(Written::Never),
            });
        }
    }
}
