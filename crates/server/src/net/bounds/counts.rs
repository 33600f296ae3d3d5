//! What the bounds of a port did, for operators.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Another one needed its place.
    Room,
    /// It sent no request, or not the preface of HTTP/2, in time.
    Silent,
    /// It did not take its answers.
    Unread,
    /// It sent much that was no call.
    Noise,
    /// It reset more calls at once than any stall of this server explains.
    Resets,
    /// There was no agreement on TLS.
    Handshake,
}

/// Counters of one port. Nothing is counted here of a connection that stays within its bounds.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections for which there was no place.
    refused: AtomicU64,
    /// In the order of [`Closed`].
    closed: [AtomicU64; 6],
    /// Bodies that arrived too slowly.
    slow: AtomicU64,
}

/// The state of a port at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortSample {
    /// Its name.
    pub(crate) port: &'static str,
    /// Connections that are open,
    pub(crate) open: u64,
    /// that have been, too,
    pub(crate) accepted: u64,
    /// and that found no place.
    pub(crate) refused: u64,
    /// In the order of [`Closed`].
    pub(crate) closed: [u64; 6],
    /// Bodies that arrived too slowly.
    pub(crate) slow: u64,
    /// Bodies and answers for which there was no room.
    pub(crate) unfinished: u64,
}

impl Counts {
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn close(&self, why: Closed) {
        self.closed[why as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn slow(&self) {
        self.slow.fetch_add(1, Relaxed);
    }

    /// With what others count.
    pub(super) fn sample(
        &self,
        port: &'static str,
        open: u64,
        accepted: u64,
        unfinished: u64,
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
            unfinished,
        }
    }
}
