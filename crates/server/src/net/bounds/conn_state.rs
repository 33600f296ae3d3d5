//! The state of a connection that its port and its socket share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};

use tokio::sync::Notify;

use super::counts::{Closed, Counts};

/// The activity of a connection, in the order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnActivity {
    /// It has never sent a request.
    NoRequest,
    /// It has no request now.
    Idle,
    /// Its request arrives slowly, or its answer is not read.
    Slow,
    Busy,
}

/// The state of a connection that its port and its socket share.
#[derive(Debug)]
pub(crate) struct ConnState {
    counts: Arc<Counts>,
    /// A [`ConnActivity`] other than `Slow`.
    standing: AtomicU8,
    slow: AtomicBool,
    greeted: AtomicBool,
    /// Whether a request has arrived completely and its answer is not complete.
    answering: AtomicBool,
    /// Bytes since the last call, part of a body, or check of the connection. Only its own thread
    /// changes them.
    idle_bytes: AtomicUsize,
    /// Number of polls of the connection's task. Each poll reads a bounded part of the received
    /// bytes. It wraps around.
    turn: AtomicU32,
    /// Calls since the last check that were reset in the poll in which they came.
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

    /// Counts that the server closes this connection for `reason`.
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

    /// Counts bytes that the peer sent. Returns the number of bytes since the last call, part of a
    /// body, or check.
    pub(super) fn add_idle_bytes(&self, bytes: usize) -> usize {
        let noise = self.idle_bytes.load(Relaxed).saturating_add(bytes);
        self.idle_bytes.store(noise, Relaxed);
        noise
    }

    /// Resets the count of idle bytes, because a call or a part of a body came.
    pub(crate) fn reset_idle_bytes(&self) {
        self.idle_bytes.store(0, Relaxed);
    }

    /// Begins a poll of the connection's task.
    pub(super) fn begin_turn(&self) {
        self.turn.store(self.turn().wrapping_add(1), Relaxed);
    }

    pub(crate) fn turn(&self) -> u32 {
        self.turn.load(Relaxed)
    }

    /// Counts calls that were reset in the poll in which they came. Returns their number since the
    /// last check of the connection.
    pub(crate) fn add_cut_short(&self, calls: u32) -> u32 {
        let calls = self.cut_short.load(Relaxed).saturating_add(calls);
        self.cut_short.store(calls, Relaxed);
        calls
    }

    /// Begins a check interval: idle bytes and early resets count from zero.
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

    /// Records that a request has arrived completely. It is answered until the activity is set.
    pub(super) fn begin_answer(&self) {
        self.answering.store(true, Relaxed);
    }

    pub(super) fn is_answering(&self) -> bool {
        self.answering.load(Relaxed)
    }

    /// Records that the peer has sent the HTTP/2 preface.
    pub(super) fn on_preface(&self) {
        self.greeted.store(true, Relaxed);
    }

    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted.load(Relaxed)
    }

    /// Evicts this connection to make room for another one.
    pub(super) fn tell_to_leave(&self) {
        self.count(Closed::Room);
        self.leave.notify_one();
    }

    /// Returns when this connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.leave.notified().await;
    }
}
