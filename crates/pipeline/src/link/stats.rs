//! Counters of one client.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counts of one client since it was created, summed over nodes and connections.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
            /// Age of the oldest pending reply.
            pub oldest_pending: Duration,
        }

        impl Sum for Stats {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |sum, other| Self {
                    $($name: sum.$name + other.$name,)+
                    oldest_pending: sum.oldest_pending.max(other.oldest_pending),
                })
            }
        }

        /// The live counters behind [`Stats`]. A node, its cluster and the client count their own
        /// part; the others stay zero.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats {
                    $($name: self.$name.load(Relaxed),)+
                    ..Stats::default()
                }
            }
        }
    };
}

counters! {
    /// Open connections.
    connections,
    /// Connections closed, by either side.
    closed,
    /// Connections opened.
    opened,
    /// Attempts to connect that failed.
    connect_failures,
    /// Commands written.
    commands,
    /// Replies read.
    replies,
    /// Commands whose reply never came, because their connection ended first. While no command is
    /// in flight, `commands` is the sum of `replies` and these.
    lost,
    /// Writes to sockets. Commands per write show how well callers share them.
    writes,
    /// Reads from sockets that returned data.
    reads,
    /// Bytes written.
    bytes_out,
    /// Wakes of a connection that found nothing to read, take or write. A connection that spins
    /// shows here. A few are usual, as when a timer is early.
    empty_wakes,
    /// Commands that are queued for a node now.
    waiting,
    /// Queries of servers for the topology.
    refreshes,
    /// Commands refused because the queue of their node was full, or because too many waited for a
    /// retry.
    overloads,
    /// Commands of calls that are waiting for a retry now, or are being sent again.
    retrying,
    /// Commands sent again, because they had not run or may run twice.
    retries,
    /// Redirects of units to the node that owns their slot.
    moved,
    /// Redirects of units to the node that their slot is moving to.
    ask,
    /// Commands that ended with a reply.
    ended_with_reply,
    /// Commands that ended with an error of the server that a retry would not change.
    ended_with_server_error,
    /// Commands that ended as not sent.
    ended_not_sent,
    /// Commands that ended because the server did not run them.
    ended_rejected,
    /// Commands that ended as unknown: they may have run.
    ended_unknown,
}

pub(crate) fn count(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Relaxed);
}

impl Counters {
    pub(crate) fn snapshot(&self, waiting: usize, oldest_pending: Duration) -> Stats {
        let read = self.read();
        let opened = read.opened.max(read.closed);
        Stats {
            connections: opened - read.closed,
            opened,
            waiting: waiting as u64,
            oldest_pending,
            ..read
        }
    }
}
