//! One call in progress, shared by the caller and the connections that carry its groups.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use smallvec::SmallVec;

use crate::batch::Batch;
use crate::node::Node;
use crate::outcome::{NotSent, Outcome, Unknown};

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

/// A batch on its way.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) batch: Batch,
    pub(crate) plans: SmallVec<[Plan; 1]>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    stages: SmallVec<[Stage; 1]>,
    /// Groups that are not done.
    open: usize,
    waker: Option<Waker>,
    /// The caller left: nothing more is written, and replies are thrown away.
    abandoned: bool,
}

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
    pub(crate) fn new(batch: Batch, plans: SmallVec<[Plan; 1]>) -> Arc<Self> {
        let stages = plans.iter().map(|_| Stage::Queued).collect();
        let open = plans.len();
        Arc::new(Self { batch, plans, progress: Mutex::new(Progress { stages, open, waker: None, abandoned: false }) })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every group is done.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing; the caller must then [`Call::leave`].
    pub(crate) async fn done(&self) {
        poll_fn(|cx| {
            let mut progress = self.progress();
            if progress.open == 0 {
                return Poll::Ready(());
            }
            match &mut progress.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }

    /// Ends the caller's interest: what is not written yet never is.
    pub(crate) fn abandon(&self) {
        self.progress().abandoned = true;
    }

    /// Ends the caller's interest and returns one outcome per command, in the batch's order.
    ///
    /// Groups that are not done count as cut off by the deadline: unsent if no connection had taken them, unknown if one had.
    pub(crate) fn leave(&self) -> Vec<Outcome> {
        let mut progress = self.progress();
        progress.abandoned = true;
        let mut stages = std::mem::take(&mut progress.stages);
        drop(progress);
        if let ([stage], [plan]) = (&mut stages[..], &self.plans[..]) {
            return stage.take(plan);
        }
        let mut all = vec![Outcome::NotSent(NotSent::Closed); self.batch.len()];
        for (stage, plan) in stages.iter_mut().zip(&self.plans) {
            let mut outcomes = stage.take(plan).into_iter();
            for range in &plan.units {
                for slot in &mut all[self.batch.commands_of(range.clone())] {
                    *slot = outcomes.next().expect("a group has one outcome per command");
                }
            }
        }
        all
    }
}

impl Stage {
    fn take(&mut self, plan: &Plan) -> Vec<Outcome> {
        let node = || Arc::clone(&plan.node.name);
        match self {
            Self::Done(outcomes) => std::mem::take(outcomes),
            Self::Queued => vec![Outcome::NotSent(NotSent::DeadlineExceeded { node: node() }); plan.load.commands],
            Self::Sent => vec![Outcome::Unknown(Unknown::DeadlineExceeded { node: node() }); plan.load.commands],
        }
    }
}

impl Group {
    pub(crate) fn load(&self) -> Load {
        self.plan().load
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.call.plans[self.index]
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

    /// Hands in the outcomes, one per command. The last group of a call wakes the caller.
    pub(crate) fn finish(self, outcomes: Vec<Outcome>) {
        let mut progress = self.call.progress();
        if progress.abandoned {
            return;
        }
        progress.stages[self.index] = Stage::Done(outcomes);
        progress.open -= 1;
        if progress.open == 0
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
