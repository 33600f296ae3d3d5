//! One group of a call: the unit of work in queues and connections.

use std::sync::Arc;

use super::{Call, Progress, Stage, Timer, Written};
use crate::batch::Batch;
use crate::batch::load::Load;
use crate::call::lock::MutexGuard;
use crate::call::units::UnitSet;
use crate::outcome::{NotSent, Outcome};

/// One group of a call: the unit of work in queues and connections.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) call: Arc<Call>,
    pub(crate) index: usize,
    /// Whether the outcomes were handed in.
    ended: bool,
}

impl Group {
    pub(crate) fn new(call: &Arc<Call>, index: usize) -> Self {
        Self {
            call: Arc::clone(call),
            index,
            ended: false,
        }
    }

    pub(crate) fn load(&self) -> Load {
        self.units().load
    }

    pub(crate) fn units(&self) -> &UnitSet {
        &self.call.groups[self.index]
    }

    /// Returns whether the caller has left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.call.progress().abandoned
    }

    /// Asks the caller to set a timer: the group is queued, and no connection watches its deadline.
    pub(crate) fn leave_timer_to_caller(&self) {
        let mut progress = self.call.progress();
        if progress.timer == Timer::Connections {
            progress.timer = Timer::Caller;
            progress.wake();
        }
    }

    /// Wakes the caller, because its deadline has passed.
    pub(crate) fn expire(&self) {
        let mut progress = self.call.progress();
        progress.timer = Timer::Expired;
        progress.wake();
    }

    /// Marks the group as handed to a connection. Returns false if the caller has left: then
    /// nothing may be written.
    pub(crate) fn start(&self) -> bool {
        let mut progress = self.call.progress();
        if progress.abandoned {
            return false;
        }
        progress.stages[self.index] = Stage::Sent;
        true
    }

    /// Hands in the outcomes, one per command. Wakes the caller if it waits for no other group.
    ///
    /// Returns the commands that must be sent nevertheless if the caller has left.
    #[inline]
    pub(crate) fn finish(mut self, outcomes: Vec<Outcome>) -> Option<Batch> {
        self.ended = true;
        let progress = self.call.progress();
        if progress.abandoned {
            drop(progress);
            return self
                .call
                .batch
                .left_behind(self.units().indices(), &outcomes);
        }
        self.end(progress, Stage::Done(outcomes));
        None
    }

    #[inline]
    fn end(&self, mut progress: MutexGuard<'_, Progress>, last: Stage) {
        progress.stages[self.index] = last;
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
        let left = self.finish(outcomes);
        debug_assert!(left.is_none(), "nothing of it was sent");
    }
}

impl Drop for Group {
    /// Ends the group if it is dropped without outcomes, as by a panic: otherwise its caller would
    /// wait until the deadline.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let progress = self.call.progress();
        if progress.abandoned {
            return;
        }
        let written = match progress.stages[self.index] {
            Stage::Sent => Written::Perhaps,
            _ => Written::Never,
        };
        self.end(progress, Stage::Dropped(written));
    }
}
