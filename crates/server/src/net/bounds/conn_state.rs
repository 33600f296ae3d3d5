//! The state of a connection that its port and its socket share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};

use tokio::sync::Notify;

use super::counts::{CloseReason, PortCounts};

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
    counts: Arc<PortCounts>,
    /// A [`ConnActivity`] other than `Slow`.
    activity: AtomicU8,
    is_slow: AtomicBool,
    preface_received: AtomicBool,
    /// Whether a request has arrived completely and its answer is not complete.
    request_complete: AtomicBool,
    /// Bytes since the last call, part of a body, or check of the connection. Only its own thread
    /// changes them.
    idle_bytes: AtomicUsize,
    /// Number of polls of the connection's task. Each poll reads a bounded part of the received
    /// bytes. It wraps around.
    poll_number: AtomicU32,
    /// Calls since the last check that were reset in the poll in which they came.
    early_resets: AtomicU32,
    eviction: Notify,
}

impl ConnState {
    pub(crate) fn new(counts: Arc<PortCounts>) -> Self {
        Self {
            counts,
            activity: AtomicU8::new(ConnActivity::NoRequest as u8),
            is_slow: AtomicBool::default(),
            preface_received: AtomicBool::default(),
            request_complete: AtomicBool::default(),
            idle_bytes: AtomicUsize::default(),
            poll_number: AtomicU32::default(),
            early_resets: AtomicU32::default(),
            eviction: Notify::new(),
        }
    }

    /// Counts that the server closes this connection for `reason`.
    pub(crate) fn count_close(&self, reason: CloseReason) {
        self.counts.closed[reason as usize].fetch_add(1, Relaxed);
    }

    /// Counts that a body arrived too slowly.
    pub(super) fn count_slow(&self) {
        self.counts.slow.fetch_add(1, Relaxed);
    }

    pub(crate) fn set_activity(&self, activity: ConnActivity) {
        self.activity.store(activity as u8, Relaxed);
        self.request_complete.store(false, Relaxed);
        self.reset_idle_bytes();
    }

    /// Counts bytes that the peer sent. Returns the number of bytes since the last call, part of a
    /// body, or check.
    pub(super) fn add_idle_bytes(&self, bytes: usize) -> usize {
        let idle_bytes = self.idle_bytes.load(Relaxed).saturating_add(bytes);
        self.idle_bytes.store(idle_bytes, Relaxed);
        idle_bytes
    }

    /// Resets the count of idle bytes, because a call or a part of a body came.
    pub(crate) fn reset_idle_bytes(&self) {
        self.idle_bytes.store(0, Relaxed);
    }

    /// Begins a poll of the connection's task.
    pub(super) fn begin_poll(&self) {
        self.poll_number
            .store(self.poll_number().wrapping_add(1), Relaxed);
    }

    pub(crate) fn poll_number(&self) -> u32 {
        self.poll_number.load(Relaxed)
    }

    /// Counts calls that were reset in the poll in which they came. Returns their number since the
    /// last check of the connection.
    pub(crate) fn add_early_resets(&self, calls: u32) -> u32 {
        let calls = self.early_resets.load(Relaxed).saturating_add(calls);
        self.early_resets.store(calls, Relaxed);
        calls
    }

    /// Begins a check interval: idle bytes and early resets count from zero.
    pub(crate) fn begin_check(&self) {
        self.reset_idle_bytes();
        self.early_resets.store(0, Relaxed);
    }

    pub(crate) fn set_slow(&self, slow: bool) {
        self.is_slow.store(slow, Relaxed);
    }

    pub(crate) fn activity(&self) -> ConnActivity {
        match self.activity.load(Relaxed) {
            0 => ConnActivity::NoRequest,
            _ if self.is_slow.load(Relaxed) => ConnActivity::Slow,
            1 => ConnActivity::Idle,
            _ => ConnActivity::Busy,
        }
    }

    /// Records that a request has arrived completely. It is answered until the activity is set.
    pub(super) fn on_request_complete(&self) {
        self.request_complete.store(true, Relaxed);
    }

    pub(super) fn is_request_complete(&self) -> bool {
        self.request_complete.load(Relaxed)
    }

    /// Records that the peer has sent the HTTP/2 preface.
    pub(super) fn on_preface(&self) {
        self.preface_received.store(true, Relaxed);
    }

    pub(crate) fn has_sent_preface(&self) -> bool {
        self.preface_received.load(Relaxed)
    }

    /// Evicts this connection to make room for another one.
    pub(super) fn evict(&self) {
        self.count_close(CloseReason::Evicted);
        self.eviction.notify_one();
    }

    /// Returns when this connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.eviction.notified().await;
    }
}
