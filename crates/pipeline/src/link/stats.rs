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
    pub oldest_pending: Duration,
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
    pub ended_with_reply: u64,
    /// Commands that ended with an error of the server that a retry would not change.
    pub ended_with_server_error: u64,
    /// Commands that ended as not sent.
    pub ended_not_sent: u64,
    /// Commands that ended because the server did not run them.
    pub ended_rejected: u64,
    /// Commands that ended as unknown: they may have run.
    pub ended_unknown: u64,
}

impl Sum for Stats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, other| Self {
            connections: sum.connections + other.connections,
            opened: sum.opened + other.opened,
            closed: sum.closed + other.closed,
            connect_failures: sum.connect_failures + other.connect_failures,
            commands: sum.commands + other.commands,
            replies: sum.replies + other.replies,
            lost: sum.lost + other.lost,
            writes: sum.writes + other.writes,
            reads: sum.reads + other.reads,
            bytes_out: sum.bytes_out + other.bytes_out,
            empty_wakes: sum.empty_wakes + other.empty_wakes,
            waiting: sum.waiting + other.waiting,
            refreshes: sum.refreshes + other.refreshes,
            oldest_pending: sum.oldest_pending.max(other.oldest_pending),
            overloads: sum.overloads + other.overloads,
            retrying: sum.retrying + other.retrying,
            retries: sum.retries + other.retries,
            moved: sum.moved + other.moved,
            ask: sum.ask + other.ask,
            ended_with_reply: sum.ended_with_reply + other.ended_with_reply,
            ended_with_server_error: sum.ended_with_server_error + other.ended_with_server_error,
            ended_not_sent: sum.ended_not_sent + other.ended_not_sent,
            ended_rejected: sum.ended_rejected + other.ended_rejected,
            ended_unknown: sum.ended_unknown + other.ended_unknown,
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

pub(crate) fn count(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Relaxed);
}

impl Counters {
    pub(crate) fn snapshot(&self, waiting: usize, oldest_pending: Duration) -> Stats {
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
            oldest_pending,
            overloads: self.overloads.load(Relaxed),
            // The cluster and the client count the rest.
            ..Stats::default()
        }
    }
}
