//! What is known of a connection from outside, and how much it is worth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};

use tokio::sync::Notify;

use super::counts::{Closed, Counts};

/// How much a connection is worth when there is no room, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnActivity {
    /// It has never sent a request.
    NoRequest,
    /// It has no request now.
    Idle,
    /// Its request arrives in drops, or its answer is not taken.
    Slow,
    Busy,
}

/// What is known of a connection from outside.
#[derive(Debug)]
pub(crate) struct ConnState {
    counts: Arc<Counts>,
    /// A `Standing` other than slow.
    standing: AtomicU8,
    slow: AtomicBool,
    greeted: AtomicBool,
    /// Whether a request is there as a whole and its answer is not.
    answering: AtomicBool,
    /// Bytes that came since the last call, part of a body, or look at the connection. Only its own thread changes them.
    idle_bytes: AtomicUsize,
    /// Number of polls of the connection's task. Each poll, called a turn, reads a bounded part of what waits. It wraps around.
    turn: AtomicU32,
    /// Calls that were reset in the turn in which they came, since the last check of the connection.
    cut_short: AtomicU32,
    leave: Notify,
}

impl ConnState {
    pub(crate) fn new(counts: Arc<Counts>) -> Self {
        Self {
            counts,
            standing: AtomicU8::new(ConnActivity::NoRequest as u8),
            slow: AtomicBool::default(),
            greeted: AtomicBool::default(),
            answering: AtomicBool::default(),
            idle_bytes: AtomicUsize::default(),
            turn: AtomicU32::default(),
            cut_short: AtomicU32::default(),
            leave: Notify::new(),
        }
    }

    /// Counts that the server closes this connection.
    pub(crate) fn count(&self, why: Closed) {
        self.counts.close(why);
    }

    /// Counts that a body arrived too slowly.
    pub(super) fn count_slow(&self) {
        self.counts.slow();
    }

    pub(crate) fn set(&self, standing: ConnActivity) {
        self.standing.store(standing as u8, Relaxed);
        self.answering.store(false, Relaxed);
        self.reset_idle_bytes();
    }

    /// Counts bytes that the peer sent; returns how many came since there was sense in them.
    pub(super) fn add_idle_bytes(&self, bytes: usize) -> usize {
        let noise = self.idle_bytes.load(Relaxed).saturating_add(bytes);
        self.idle_bytes.store(noise, Relaxed);
        noise
    }

    /// Forgets the bytes that came before: they were for something.
    pub(crate) fn reset_idle_bytes(&self) {
        self.idle_bytes.store(0, Relaxed);
    }

    /// Begins a turn of the connection's task.
    pub(super) fn begin_turn(&self) {
        self.turn.store(self.turn().wrapping_add(1), Relaxed);
    }

    pub(crate) fn turn(&self) -> u32 {
        self.turn.load(Relaxed)
    }

    /// Counts calls that were reset in the turn in which they came. Returns their number since the last check of the connection.
    pub(crate) fn add_cut_short(&self, calls: u32) -> u32 {
        let calls = self.cut_short.load(Relaxed).saturating_add(calls);
        self.cut_short.store(calls, Relaxed);
        calls
    }

    /// A check of the connection: noise and resets are counted from now on.
    pub(crate) fn begin_check(&self) {
        self.reset_idle_bytes();
        self.cut_short.store(0, Relaxed);
    }

    pub(crate) fn set_slow(&self, slow: bool) {
        self.slow.store(slow, Relaxed);
    }

    pub(crate) fn standing(&self) -> ConnActivity {
        match self.standing.load(Relaxed) {
            0 => ConnActivity::NoRequest,
            _ if self.slow.load(Relaxed) => ConnActivity::Slow,
            1 => ConnActivity::Idle,
            _ => ConnActivity::Busy,
        }
    }

    /// Notes that a request is there as a whole, until the standing is set.
    pub(super) fn begin_answer(&self) {
        self.answering.store(true, Relaxed);
    }

    pub(super) fn is_answering(&self) -> bool {
        self.answering.load(Relaxed)
    }

    /// Notes that the peer has sent what a connection begins with.
    pub(super) fn on_preface(&self) {
        self.greeted.store(true, Relaxed);
    }

    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted.load(Relaxed)
    }

    /// Closes this connection, which must make room.
    pub(super) fn tell_to_leave(&self) {
        self.count(Closed::Room);
        self.leave.notify_one();
    }

    /// Returns when this connection must make room.
    pub(crate) async fn evicted(&self) {
        self.leave.notified().await;
    }
}
