//! Counters of one client.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a client's connections did since it was made. Sums over nodes and connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Open connections.
    pub connections: u64,
    /// Connections opened.
    pub opened: u64,
    /// Connections closed, by either side.
    pub closed: u64,
    /// Attempts to connect that failed.
    pub connect_failures: u64,
    /// Commands written.
    pub commands: u64,
    /// Replies read.
    pub replies: u64,
    /// Commands whose reply never came, because their connection ended first. When nothing is under way, `commands` is
    /// `replies` and these.
    pub lost: u64,
    /// Writes to sockets. Commands over writes is how well callers share them.
    pub writes: u64,
    /// Reads from sockets that returned data.
    pub reads: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Wakes of a connection that found nothing to read, to take or to write. A connection that spins shows here; a few are
    /// usual, as when a timer is early.
    pub empty_wakes: u64,
    /// Commands that waited for a node now.
    pub waiting: u64,
    /// Times that servers were asked who owns what.
    pub refreshes: u64,
}

impl Sum for Stats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, more| Self {
            connections: sum.connections + more.connections,
            opened: sum.opened + more.opened,
            closed: sum.closed + more.closed,
            connect_failures: sum.connect_failures + more.connect_failures,
            commands: sum.commands + more.commands,
            replies: sum.replies + more.replies,
            lost: sum.lost + more.lost,
            writes: sum.writes + more.writes,
            reads: sum.reads + more.reads,
            bytes_out: sum.bytes_out + more.bytes_out,
            bytes_in: sum.bytes_in + more.bytes_in,
            empty_wakes: sum.empty_wakes + more.empty_wakes,
            waiting: sum.waiting + more.waiting,
            refreshes: sum.refreshes + more.refreshes,
        })
    }
}

/// Where connections count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) opened: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) empty_wakes: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Relaxed);
}

impl Counters {
    pub(crate) fn snapshot(&self, waiting: usize) -> Stats {
        let closed = self.closed.load(Relaxed);
        let opened = self.opened.load(Relaxed).max(closed);
        Stats {
            connections: opened - closed,
            opened,
            closed,
            connect_failures: self.connect_failures.load(Relaxed),
            commands: self.commands.load(Relaxed),
            replies: self.replies.load(Relaxed),
            lost: self.lost.load(Relaxed),
            writes: self.writes.load(Relaxed),
            reads: self.reads.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            empty_wakes: self.empty_wakes.load(Relaxed),
            waiting: waiting as u64,
            // Counted by the cluster.
            refreshes: 0,
        }
    }
}
