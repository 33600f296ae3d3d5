//! What a client did.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// What a client did since it was made, and what it has now.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
        }

        /// The same, as it is counted.
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
    /// Reads of which every key was answered.
    reads,
    /// Reads of which a key was not.
    failed_reads,
    /// Keys that were asked for.
    keys_requested,
    /// Keys that were there.
    keys_found,
    /// Keys that held something else than a number.
    foreign_values,
    /// Counters that were changed.
    changes,
    /// Counters that were gone when they were to be changed.
    missed_changes,
    /// Counters that could not be changed, or perhaps were not.
    failed_changes,
    /// Of these, those that found no room to wait.
    dropped_changes,
    /// Counters that were made.
    adds,
    /// Counters that somebody else had made meanwhile.
    unneeded_adds,
    /// Counters that could not be made.
    failed_adds,
    /// Connections that were opened.
    opened,
    /// Connections that ended.
    closed,
    /// Attempts to connect that failed.
    connect_failures,
    /// Bytes that wait for a server or its answer now.
    waiting_bytes,
}

pub(crate) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Relaxed);
}
