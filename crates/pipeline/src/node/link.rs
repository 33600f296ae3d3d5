//! The node's side of one connection.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::batch::load::Load;
use crate::call::group::Group;
use crate::node::queue::Queue;
use crate::node::selection::{self, Offer};

/// Names one connection of a node, for as long as the node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkId(pub(crate) u64);

/// The node's side of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) standing: Standing,
    /// Groups the connection has not taken yet; they count in `load`.
    pub(crate) queue: VecDeque<Group>,
    /// Queued and in flight.
    pub(crate) load: Load,
    pub(crate) waker: Option<Waker>,
    /// When the oldest command in flight was written.
    pub(crate) oldest: Option<Instant>,
    /// Recent mean time between a write and its last reply.
    pub(crate) reply_time: Duration,
    pub(crate) opened: Instant,
}

/// Whether a connection gets new work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It does.
    Serving,
    /// It has been silent for a while, and gets none until it speaks again; another connection is tried meanwhile.
    Suspect,
    /// It gets no more, and closes when it owes nothing.
    Retiring,
    /// It is silent while another one works: what it owes will not come.
    GivenUp,
}

/// Why a connection should close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It owes nothing and gets nothing more.
    Retired,
    /// See [`Standing::GivenUp`].
    GivenUp,
}

/// What a connection tells its node at each turn.
pub(crate) struct Turn<'a> {
    pub(crate) link: LinkId,
    /// What was answered or dropped since the last turn.
    pub(crate) released: Load,
    pub(crate) oldest: Option<Instant>,
    pub(crate) reply_time: Duration,
    pub(crate) waker: &'a Waker,
}

impl Link {
    pub(crate) fn new(id: LinkId) -> Self {
        Self {
            id,
            standing: Standing::Serving,
            queue: VecDeque::new(),
            load: Load::default(),
            waker: None,
            oldest: None,
            reply_time: Duration::ZERO,
            opened: Instant::now(),
        }
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.standing == Standing::Serving
    }

    /// How long a reply takes now: as long as others did, or as the oldest one has taken already.
    pub(crate) fn expected_reply_time(&self) -> Duration {
        self.reply_time.max(self.oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed()))
    }

    /// What selection sees of it.
    pub(crate) fn offer(&self, more: Load, cap: Load) -> Offer {
        let accepts = self.is_serving() && selection::accepts(self.load, more, cap);
        let reply_time = u64::try_from(self.reply_time.as_nanos()).unwrap_or(u64::MAX);
        Offer { accepts, cost: (self.load.commands as u64).saturating_mul(reply_time.saturating_add(1)) }
    }

    pub(crate) fn push(&mut self, group: Group, load: Load) {
        self.load.add(load);
        self.queue.push_back(group);
        // A queue that was not empty has woken its connection already.
        if self.queue.len() == 1 {
            self.wake();
        }
    }

    /// Takes note of a turn, and moves the queue into `groups`.
    pub(crate) fn turn(&mut self, turn: &Turn<'_>, groups: &mut Vec<Group>) -> Result<(), Gone> {
        self.load.remove(turn.released);
        self.oldest = turn.oldest;
        self.reply_time = turn.reply_time;
        match &mut self.waker {
            Some(waker) => waker.clone_from(turn.waker),
            none => *none = Some(turn.waker.clone()),
        }
        match self.standing {
            Standing::GivenUp => return Err(Gone::GivenUp),
            Standing::Retiring if self.load == Load::default() => return Err(Gone::Retired),
            _ => {}
        }
        groups.extend(self.queue.drain(..));
        Ok(())
    }

    /// Takes as many of the groups that wait as fit.
    pub(crate) fn take_waiting(&mut self, waiting: &mut Queue, cap: Load, groups: &mut Vec<Group>) {
        while let Some(load) = waiting.head() {
            if !self.offer(load, cap).accepts {
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
