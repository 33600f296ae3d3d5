//! Counters of one client.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts of one client since it was created, summed over nodes and connections.
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
    /// Commands whose reply never came, because their connection ended first. While no command is
    /// in flight, `commands` is the sum of `replies` and these.
    pub lost: u64,
    /// Writes to sockets. Commands per write show how well callers share them.
    pub writes: u64,
    /// Reads from sockets that returned data.
    pub reads: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Wakes of a connection that found nothing to read, take or write. A connection that spins
    /// shows here. A few are usual, as when a timer is early.
    pub empty_wakes: u64,
    /// Commands that are queued for a node now.
    pub waiting: u64,
    /// Queries of servers for the topology.
    pub refreshes: u64,
    /// Age of the oldest pending reply.
    pub oldest_owed: Duration,
    /// Commands refused because the queue of their node was full, or because too many waited for a
    /// retry.
    pub overloads: u64,
    /// Commands of calls that are waiting for a retry now, or are being sent again.
    pub retrying: u64,
    /// Commands sent again, because they had not run or may run twice.
    pub retries: u64,
    /// Redirects of units to the node that owns their slot.
    pub moved: u64,
    /// Redirects of units to the node that their slot is moving to.
    pub ask: u64,
    /// Commands that ended with a reply.
    pub told_reply: u64,
    /// Commands that ended with an error of the server that a retry would not change.
    pub told_server_error: u64,
    /// Commands that ended as not sent.
    pub told_not_sent: u64,
    /// Commands that ended because the server did not run them.
    pub told_rejected: u64,
    /// Commands that ended as unknown: they may have run.
    pub told_unknown: u64,
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
            empty_wakes: sum.empty_wakes + more.empty_wakes,
            waiting: sum.waiting + more.waiting,
            refreshes: sum.refreshes + more.refreshes,
            oldest_owed: sum.oldest_owed.max(more.oldest_owed),
            overloads: sum.overloads + more.overloads,
            retrying: sum.retrying + more.retrying,
            retries: sum.retries + more.retries,
            moved: sum.moved + more.moved,
            ask: sum.ask + more.ask,
            told_reply: sum.told_reply + more.told_reply,
            told_server_error: sum.told_server_error + more.told_server_error,
            told_not_sent: sum.told_not_sent + more.told_not_sent,
            told_rejected: sum.told_rejected + more.told_rejected,
            told_unknown: sum.told_unknown + more.told_unknown,
        })
    }
}

/// Counters of the connections of one node.
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
    pub(crate) empty_wakes: AtomicU64,
    pub(crate) overloads: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Relaxed);
}

impl Counters {
    pub(crate) fn snapshot(&self, waiting: usize, oldest_owed: Duration) -> Stats {
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
            empty_wakes: self.empty_wakes.load(Relaxed),
            waiting: waiting as u64,
            oldest_owed,
            overloads: self.overloads.load(Relaxed),
            // The cluster and the client count the rest.
            ..Stats::default()
        }
    }
}
