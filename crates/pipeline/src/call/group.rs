//! One group of a call: the unit of work in queues and connections.

use std::sync::Arc;

use super::{Call, CallProgress, DeadlineTimer, GroupStage, UnitSet, WriteStatus};
use crate::batch::{Batch, Load};
use crate::call::lock::MutexGuard;
use crate::outcome::{NotSent, Outcome};

/// One group of a call: the unit of work in queues and connections.
#[derive(Debug)]
pub(crate) struct CallGroup {
    pub(crate) call: Arc<Call>,
    pub(crate) index: usize,
    /// Whether the outcomes were handed in.
    ended: bool,
}

impl CallGroup {
    pub(crate) fn new(call: &Arc<Call>, index: usize) -> Self {
        Self {
            call: call.clone(),
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
        if progress.timer == DeadlineTimer::Connections {
            progress.timer = DeadlineTimer::Caller;
            progress.wake();
        }
    }

    /// Wakes the caller, because its deadline has passed.
    pub(crate) fn expire(&self) {
        let mut progress = self.call.progress();
        progress.timer = DeadlineTimer::Expired;
        progress.wake();
    }

    /// Marks the group as handed to a connection. Returns false if the caller has left: then
    /// nothing may be written.
    pub(crate) fn start(&self) -> bool {
        let mut progress = self.call.progress();
        if progress.abandoned {
            return false;
        }
        progress.stages[self.index] = GroupStage::Sent;
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
        self.set_final_stage(progress, GroupStage::Done(outcomes));
        None
    }

    #[inline]
    fn set_final_stage(&self, mut progress: MutexGuard<'_, CallProgress>, last: GroupStage) {
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

impl Drop for CallGroup {
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
            GroupStage::Sent => WriteStatus::MaybeWritten,
            _ => WriteStatus::NotWritten,
        };
        self.set_final_stage(progress, GroupStage::Dropped(written));
    }
}
