//! Counters of the bounds of a port, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The reason why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// Another connection needed its slot.
    Evicted,
    /// It did not send a request, or the HTTP/2 preface, in time.
    NoRequest,
    /// It did not read its answers.
    UnreadAnswers,
    /// It sent many bytes that belong to no call.
    IdleBytes,
    /// It reset more calls at once than any stall of this server explains.
    Resets,
    /// The TLS handshake failed.
    Handshake,
}

/// Counters of one port. A connection that stays within its bounds is not counted here.
#[derive(Debug, Default)]
pub(crate) struct PortCounts {
    /// Connections that were refused because the table was full.
    pub(super) refused: AtomicU64,
    /// In the order of [`CloseReason`].
    pub(super) closed: [AtomicU64; 6],
    /// Bodies that arrived too slowly.
    pub(super) slow: AtomicU64,
}

/// The state of a port at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortSample {
    /// Its name.
    pub(crate) port: &'static str,
    /// Connections that are open.
    pub(crate) open: u64,
    /// Connections since the start.
    pub(crate) accepted: u64,
    /// Connections that were refused because the table was full.
    pub(crate) refused: u64,
    /// In the order of [`CloseReason`].
    pub(crate) closed: [u64; 6],
    /// Bodies that arrived too slowly.
    pub(crate) slow: u64,
    /// Bodies and answers that were refused for lack of memory.
    pub(crate) memory_refusals: u64,
}

impl PortCounts {
    /// Reads the counters, and adds the numbers that the table and the budget count.
    pub(super) fn sample(
        &self,
        port: &'static str,
        open: u64,
        accepted: u64,
        memory_refusals: u64,
    ) -> PortSample {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let closed = self.closed.each_ref().map(read);
        PortSample {
            port,
            open,
            accepted,
            refused: read(&self.refused),
            closed,
            slow: read(&self.slow),
            memory_refusals,
        }
    }
}
