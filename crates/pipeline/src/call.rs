//! One call in progress, shared by the caller and the connections that carry its groups.

pub(crate) mod lock;

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker, ready};

use smallvec::SmallVec;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::batch::Batch;
use crate::call::lock::{Mutex, MutexGuard};
use crate::node::Node;
use crate::outcome::{NotSent, Outcome, Unknown};
use crate::wire::slot::Slot;

/// Commands and their encoded bytes: what a queue and a connection are bounded in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) commands: usize,
    pub(crate) bytes: usize,
}

impl Load {
    pub(crate) fn add(&mut self, more: Self) {
        self.commands += more.commands;
        self.bytes += more.bytes;
    }

    /// Whether `more` on top stays within `cap`.
    pub(crate) fn fits(self, more: Self, cap: Self) -> bool {
        self.commands + more.commands <= cap.commands && self.bytes + more.bytes <= cap.bytes
    }

    pub(crate) fn remove(&mut self, less: Self) {
        self.commands -= less.commands;
        self.bytes -= less.bytes;
    }
}

/// The units of a batch that travel together to one node.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) node: Arc<Node>,
    /// Ranges of unit indices, ascending. One range when a batch goes to one node.
    pub(crate) units: SmallVec<[Range<u32>; 1]>,
    pub(crate) load: Load,
}

impl Plan {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, units: SmallVec::new(), load: Load::default() }
    }

    /// Adds the next unit.
    pub(crate) fn push(&mut self, unit: u32, load: Load) {
        match self.units.last_mut() {
            Some(range) if range.end == unit => range.end += 1,
            _ => self.units.push(unit..unit + 1),
        }
        self.load.add(load);
    }
}

/// A batch on its way.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) batch: Batch,
    pub(crate) plans: SmallVec<[Plan; 1]>,
    /// The topology snapshot that the plans follow.
    pub(crate) epoch: u64,
    pub(crate) deadline: Instant,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    stages: SmallVec<[Stage; 1]>,
    done: usize,
    /// The caller is woken when this many groups are done, and not before.
    wake_at: usize,
    waker: Option<Waker>,
    /// The caller left: nothing more is written, and replies are thrown away.
    abandoned: bool,
    clock: Clock,
}

/// Who ends a call at its deadline. A timer for each call would cost a tenth of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// The connections that hold its groups: each has one timer, for the earliest deadline of all it holds.
    Connections,
    /// The caller, by a timer of its own, because a group of it is with no connection.
    Caller,
    /// The deadline has passed.
    Overdue,
}

/// The deadline passed before a call was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overdue;

#[derive(Debug)]
enum Stage {
    Queued,
    Sent,
    Done(Vec<Outcome>),
}

/// One group of a call: what queues and connections hold.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) call: Arc<Call>,
    pub(crate) index: usize,
}

impl Call {
    pub(crate) fn new(batch: Batch, plans: SmallVec<[Plan; 1]>, epoch: u64, deadline: Instant) -> Arc<Self> {
        let stages = plans.iter().map(|_| Stage::Queued).collect();
        let clock = Clock::Connections;
        let progress = Progress { stages, done: 0, wake_at: 0, waker: None, abandoned: false, clock };
        Arc::new(Self { batch, plans, epoch, deadline, progress: Mutex::new(progress) })
    }

    /// The node that a unit was planned for.
    pub(crate) fn node_of(&self, unit: u32) -> Option<&Arc<Node>> {
        let plan = self.plans.iter().find(|plan| plan.units.iter().any(|range| range.contains(&unit)))?;
        Some(&plan.node)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` groups are done, or the deadline has passed.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing; the caller must then [`Call::abandon`] or [`Call::leave`].
    pub(crate) async fn until(&self, done: usize) -> Result<(), Overdue> {
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            let mut progress = self.progress();
            if progress.done >= done {
                return Poll::Ready(Ok(()));
            }
            if progress.clock == Clock::Overdue {
                return Poll::Ready(Err(Overdue));
            }
            progress.wake_at = done;
            match &mut progress.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            if progress.clock == Clock::Connections {
                return Poll::Pending;
            }
            drop(progress);
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(self.deadline)));
            ready!(timer.as_mut().poll(cx));
            Poll::Ready(Err(Overdue))
        })
        .await
    }

    /// Whether the caller has to set a timer of its own.
    #[cfg(test)]
    pub(crate) fn minds_its_clock(&self) -> bool {
        self.progress().clock == Clock::Caller
    }

    /// How many groups are done.
    pub(crate) fn done(&self) -> usize {
        self.progress().done
    }

    /// Whether a command of a group that is done failed for good.
    pub(crate) fn failed(&self) -> bool {
        let failed = |outcome: &Outcome| !outcome.ran() && !outcome.may_be_sent_again();
        self.progress().stages.iter().any(|stage| matches!(stage, Stage::Done(outcomes) if outcomes.iter().any(failed)))
    }

    /// Ends the caller's interest: what is not written yet never is.
    pub(crate) fn abandon(&self) {
        self.progress().abandoned = true;
    }

    /// Ends the caller's interest and returns one outcome per command, in the batch's order.
    ///
    /// A group that a connection took and that is not done is unknown: the deadline cut it off. One that none took was not
    /// sent, because of `unsent`. A unit in no group has no known owner.
    pub(crate) fn leave(&self, unsent: impl Fn(&Node) -> NotSent) -> Vec<Outcome> {
        let mut progress = self.progress();
        progress.abandoned = true;
        let mut stages = std::mem::take(&mut progress.stages);
        drop(progress);
        if let ([stage], [plan]) = (&mut stages[..], &self.plans[..])
            && plan.load.commands == self.batch.len()
        {
            return stage.take(plan, &unsent);
        }
        let mut all = Vec::with_capacity(self.batch.len());
        for unit in 0..self.batch.units.len() as u32 {
            let slot = self.batch.slot_of(unit).map_or(0, Slot::number);
            all.resize(self.batch.commands_of(0..unit + 1).end, Outcome::NotSent(NotSent::NoOwner { slot }));
        }
        for (stage, plan) in stages.iter_mut().zip(&self.plans) {
            let mut outcomes = stage.take(plan, &unsent).into_iter();
            for range in &plan.units {
                for slot in &mut all[self.batch.commands_of(range.clone())] {
                    *slot = outcomes.next().expect("a group has one outcome per command");
                }
            }
        }
        all
    }
}

impl Progress {
    /// Wakes the caller and keeps the waker: the call is not done.
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl Stage {
    fn take(&mut self, plan: &Plan, unsent: impl Fn(&Node) -> NotSent) -> Vec<Outcome> {
        let outcome = match self {
            Self::Done(outcomes) => return std::mem::take(outcomes),
            Self::Queued => Outcome::NotSent(unsent(&plan.node)),
            Self::Sent => Outcome::Unknown(Unknown::DeadlineExceeded { node: Arc::clone(&plan.node.name) }),
        };
        vec![outcome; plan.load.commands]
    }
}

impl Group {
    pub(crate) fn load(&self) -> Load {
        self.plan().load
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.call.plans[self.index]
    }

    /// Whether the caller has left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.call.progress().abandoned
    }

    /// Tells the caller that no connection keeps its deadline: the group has to wait for one.
    pub(crate) fn wait(&self) {
        let mut progress = self.call.progress();
        if progress.clock == Clock::Connections {
            progress.clock = Clock::Caller;
            progress.wake();
        }
    }

    /// Tells the caller that its deadline has passed.
    pub(crate) fn expire(&self) {
        let mut progress = self.call.progress();
        progress.clock = Clock::Overdue;
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

    /// Hands in the outcomes, one per command. The group that the caller waits for last wakes it.
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
