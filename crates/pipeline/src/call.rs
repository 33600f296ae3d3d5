//! One call in progress, shared by the caller and the connections that carry its groups.

mod group;
mod left_behind;
pub(crate) mod lock;
mod units;

pub(crate) use group::CallGroup;
pub(crate) use left_behind::LeftBehind;
pub(crate) use units::UnitSet;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker, ready};

use smallvec::SmallVec;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::batch::Batch;
use crate::call::lock::{Mutex, MutexGuard};
use crate::outcome::{NotSent, Outcome};
use crate::wire::Slot;

/// One attempt to send a batch.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) batch: Batch,
    pub(crate) groups: SmallVec<[UnitSet; 1]>,
    pub(crate) deadline: Instant,
    progress: Mutex<CallProgress>,
}

#[derive(Debug)]
struct CallProgress {
    stages: SmallVec<[GroupStage; 1]>,
    done: usize,
    /// Number of finished groups at which the caller is woken.
    wake_at: usize,
    waker: Option<Waker>,
    /// Whether the caller left: nothing more is written, and replies are dropped.
    abandoned: bool,
    timer: DeadlineTimer,
}

/// Timer that ends a call at its deadline: that of its caller, or those of the connections with its
/// groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeadlineTimer {
    /// The connections that hold the groups of the call: each has one timer, for the earliest
    /// deadline of all its groups.
    Connections,
    /// The caller, because no connection holds one of the groups.
    Caller,
    /// The deadline has passed.
    Expired,
}

/// The deadline passed before the call was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadlinePassed;

#[derive(Debug)]
enum GroupStage {
    Queued,
    Sent,
    Done(Vec<Outcome>),
    /// The connection or queue was dropped without finishing the group.
    Dropped(WriteStatus),
}

/// Reason why a group has no outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The group was not done when the caller left.
    NotDone(WriteStatus),
    /// The connection or queue that held the group was dropped.
    Dropped(WriteStatus),
}

/// Whether a group without outcomes may have been written to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteStatus {
    NotWritten,
    MaybeWritten,
}

impl Call {
    pub(crate) fn new(
        batch: Batch,
        groups: SmallVec<[UnitSet; 1]>,
        deadline: Instant,
    ) -> Arc<Self> {
        let stages = groups.iter().map(|_| GroupStage::Queued).collect();
        let timer = DeadlineTimer::Connections;
        let progress = CallProgress {
            stages,
            done: 0,
            wake_at: 0,
            waker: None,
            abandoned: false,
            timer,
        };
        Arc::new(Self {
            batch,
            groups,
            deadline,
            progress: Mutex::new(progress),
        })
    }

    fn progress(&self) -> MutexGuard<'_, CallProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` groups are done, or the deadline has passed.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing; the caller must then [`Call::abandon`] or
    /// [`Call::leave`].
    pub(crate) async fn wait_until_done(&self, done: usize) -> Result<(), DeadlinePassed> {
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            let mut progress = self.progress();
            if progress.done >= done {
                return Poll::Ready(Ok(()));
            }
            if progress.timer == DeadlineTimer::Expired {
                return Poll::Ready(Err(DeadlinePassed));
            }
            progress.wake_at = done;
            match &mut progress.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            if progress.timer == DeadlineTimer::Connections {
                return Poll::Pending;
            }
            drop(progress);
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(self.deadline)));
            ready!(timer.as_mut().poll(cx));
            Poll::Ready(Err(DeadlinePassed))
        })
        .await
    }

    /// Returns whether the caller must set a timer.
    #[cfg(test)]
    pub(crate) fn needs_own_timer(&self) -> bool {
        self.progress().timer == DeadlineTimer::Caller
    }

    /// Returns the number of finished groups.
    pub(crate) fn done_count(&self) -> usize {
        self.progress().done
    }

    /// Returns whether all of these groups are done.
    pub(crate) fn all_done(&self, groups: &[usize]) -> bool {
        let progress = self.progress();
        groups
            .iter()
            .all(|&group| matches!(progress.stages[group], GroupStage::Done(_)))
    }

    /// Returns whether a command of a finished group failed for good.
    pub(crate) fn has_permanent_failure(&self) -> bool {
        let failed = |outcome: &Outcome| !outcome.ran() && !outcome.may_be_sent_again();
        self.progress()
            .stages
            .iter()
            .any(|stage| matches!(stage, GroupStage::Done(outcomes) if outcomes.iter().any(failed)))
    }

    /// Marks the caller as gone: commands that are not written yet never are. Returns the commands
    /// that must be sent nevertheless.
    pub(crate) fn abandon(&self) -> Vec<Batch> {
        let mut progress = self.progress();
        progress.abandoned = true;
        let stages = std::mem::take(&mut progress.stages);
        drop(progress);
        let left = |(stage, units): (&GroupStage, &UnitSet)| match stage {
            GroupStage::Done(outcomes) => self.batch.left_behind(units.indices(), outcomes),
            GroupStage::Queued | GroupStage::Sent | GroupStage::Dropped(_) => None,
        };
        stages.iter().zip(&self.groups).filter_map(left).collect()
    }

    /// Marks the caller as gone and returns one outcome per command, in the order of the batch.
    ///
    /// `unanswered` returns the outcome for the commands of an unfinished group, given its index. A
    /// unit in no group has no known owner.
    pub(crate) fn leave(&self, unanswered: impl Fn(usize, Unanswered) -> Outcome) -> Vec<Outcome> {
        let mut progress = self.progress();
        progress.abandoned = true;
        let mut stages = std::mem::take(&mut progress.stages);
        drop(progress);
        if let ([stage], [units]) = (&mut stages[..], &self.groups[..])
            && units.load.commands == self.batch.len()
        {
            return stage.take_outcomes(units, |why| unanswered(0, why));
        }
        let mut all = self.without_owner();
        for (group, (stage, units)) in stages.iter_mut().zip(&self.groups).enumerate() {
            let mut outcomes = stage
                .take_outcomes(units, |why| unanswered(group, why))
                .into_iter();
            for range in &units.ranges {
                for place in &mut all[self.batch.commands_of(range.clone())] {
                    *place = outcomes
                        .next()
                        .expect("a group has one outcome per command");
                }
            }
        }
        all
    }

    /// Returns one outcome per command, each as if no node owned its slot.
    fn without_owner(&self) -> Vec<Outcome> {
        let mut all = Vec::with_capacity(self.batch.len());
        for unit in 0..self.batch.units.len() as u32 {
            let slot = self.batch.slot_of(unit).map_or(0, Slot::number);
            all.resize(
                self.batch.commands_of(0..unit + 1).end,
                Outcome::NotSent(NotSent::NoOwner { slot, reason: None }),
            );
        }
        all
    }
}

impl CallProgress {
    /// Wakes the caller and keeps the waker, because the call is not done.
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl GroupStage {
    fn take_outcomes(
        &mut self,
        units: &UnitSet,
        unanswered: impl Fn(Unanswered) -> Outcome,
    ) -> Vec<Outcome> {
        let outcome = match self {
            Self::Done(outcomes) => return std::mem::take(outcomes),
            Self::Queued => unanswered(Unanswered::NotDone(WriteStatus::NotWritten)),
            Self::Sent => unanswered(Unanswered::NotDone(WriteStatus::MaybeWritten)),
            Self::Dropped(written) => unanswered(Unanswered::Dropped(*written)),
        };
        vec![outcome; units.load.commands]
    }
}
