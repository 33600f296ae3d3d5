//! Counts of what a client did.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counts of what a client did since it was created, and gauges of its current state.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
        }

        /// The live counters behind [`Stats`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Relaxed),)+ }
            }
        }

        impl std::iter::Sum for Stats {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |sum, one| Self { $($name: sum.$name + one.$name,)+ })
            }
        }
    };
}

counters! {
    /// Reads that got an answer for every key.
    reads,
    /// Reads that got no answer for at least one key.
    failed_reads,
    /// Keys that were requested.
    keys_requested,
    /// Keys that had a value.
    keys_found,
    /// Keys whose value was not a number.
    foreign_values,
    /// Counters that were changed.
    changes,
    /// Changes of counters that no longer existed.
    missed_changes,
    /// Changes that failed or whose result is unknown.
    failed_changes,
    /// Failed changes that were dropped because the queue was full or the server was down.
    dropped_changes,
    /// Counters that were created.
    adds,
    /// Creations of counters that another client had created first.
    unneeded_adds,
    /// Creations of counters that failed.
    failed_adds,
    /// Connections that were opened.
    opened,
    /// Connections that ended.
    closed,
    /// Attempts to connect that failed.
    connect_failures,
    /// Current bytes of queued commands and pending replies.
    waiting_bytes,
}

pub(crate) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Relaxed);
}
