//! The bytes that unfinished requests and answers hold: few for each connection, and more for all
//! of a port.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Bytes that a connection may hold without the shared budget. Real requests and answers stay below
/// it, so no client can use up their memory, and cores do not contend for the budget.
const FREE_BYTES: usize = 256 * 1024;
/// Maximum of bytes that one connection may hold: two of the largest messages.
const MOST: usize = 8 * 1024 * 1024;
/// Maximum of open calls of one connection whose answers have no end. A client watches the health
/// of a service or two.
const MOST_OPEN: usize = 16;

/// The bytes that all connections of a port may hold in addition to [`FREE_BYTES`] each.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicUsize,
    /// Bodies and answers that were refused for lack of memory.
    refused: AtomicU64,
}

/// The memory of one connection.
///
/// **Invariant:** the calls of a connection run on one thread, so no other code runs between two
/// steps of its methods.
#[derive(Debug)]
pub(crate) struct ConnectionMemory {
    budget: Arc<Budget>,
    most: usize,
    held: AtomicUsize,
    /// Answers that their peer has not read.
    unread: AtomicUsize,
    /// Answers that were read, or dropped.
    ended: AtomicUsize,
    /// Calls whose answers have no end.
    open: AtomicUsize,
}

/// A call whose answer has no end. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<ConnectionMemory>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.store(self.0.open.load(Relaxed) - 1, Relaxed);
    }
}

/// Bytes reserved for a body.
#[derive(Debug)]
pub(super) struct BodyReservation {
    tab: Arc<ConnectionMemory>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            left: AtomicUsize::new(bytes),
            refused: AtomicU64::new(0),
        }
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        bytes == 0
            || self
                .left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes))
                .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.left.fetch_add(bytes, Relaxed);
        }
    }
}

impl ConnectionMemory {
    /// The memory of a connection with many messages.
    pub(crate) fn new(budget: Arc<Budget>) -> Arc<Self> {
        Self::with_most(budget, MOST)
    }

    /// The memory of a connection with one body at a time, whose size the HTTP layer bounds.
    pub(crate) fn unbounded(budget: Arc<Budget>) -> Arc<Self> {
        Self::with_most(budget, usize::MAX)
    }

    fn with_most(budget: Arc<Budget>, most: usize) -> Arc<Self> {
        Arc::new(Self {
            budget,
            most,
            held: 0.into(),
            unread: 0.into(),
            ended: 0.into(),
            open: 0.into(),
        })
    }

    /// Counts an answer that its peer has not read.
    pub(super) fn begin(&self) {
        self.unread.store(self.unread.load(Relaxed) + 1, Relaxed);
    }

    /// Counts an answer that was read, or dropped.
    pub(super) fn end(&self) {
        self.unread.store(self.unread.load(Relaxed) - 1, Relaxed);
        self.ended
            .store(self.ended.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts a call whose answer has no end. Returns `None` if the connection has the maximum of
    /// such calls.
    pub(crate) fn open(self: &Arc<Self>) -> Option<OpenStream> {
        let open = self.open.load(Relaxed);
        (open < MOST_OPEN).then(|| {
            self.open.store(open + 1, Relaxed);
            OpenStream(self.clone())
        })
    }

    /// Number of answers that their peer has not read.
    pub(crate) fn unread(&self) -> usize {
        self.unread.load(Relaxed)
    }

    /// Number of answers that have ended. It wraps around.
    pub(crate) fn ended(&self) -> usize {
        self.ended.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.held.load(Relaxed);
        let after = before.saturating_add(bytes);
        let taken = after <= self.most && self.budget.take(beyond(after) - beyond(before));
        if taken {
            self.held.store(after, Relaxed);
        } else {
            self.budget.refused.fetch_add(1, Relaxed);
        }
        taken
    }
}

fn beyond(held: usize) -> usize {
    held.saturating_sub(FREE_BYTES)
}

impl BodyReservation {
    pub(super) fn new(tab: Arc<ConnectionMemory>) -> Self {
        Self { tab, bytes: 0 }
    }

    pub(super) fn tab(&self) -> &ConnectionMemory {
        &self.tab
    }

    /// Reserves `bytes` in all. Returns false if there is no memory for more.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grown = more == 0 || self.tab.take(more);
        if grown {
            self.bytes += more;
        }
        grown
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let before = self.tab.held.load(Relaxed);
            let after = before - self.bytes;
            self.tab.held.store(after, Relaxed);
            self.tab.budget.give_back(beyond(before) - beyond(after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_its_own_share_and_then_what_is_left_for_all() {
        let budget = Arc::new(Budget::new(1_000));
        let greedy = ConnectionMemory::new(budget.clone());
        let modest = ConnectionMemory::new(budget.clone());
        let hold = |tab: &Arc<ConnectionMemory>, bytes: usize| {
            let mut holding = BodyReservation::new(tab.clone());
            holding.grow(bytes).then_some(holding)
        };
        let first = hold(&greedy, FREE_BYTES).unwrap();
        let second = hold(&greedy, 1_000).unwrap();
        assert!(hold(&greedy, 1).is_none(), "the budget is spent");
        let own = hold(&modest, FREE_BYTES).unwrap();
        assert!(
            hold(&modest, 1).is_none(),
            "but what is its own each connection has"
        );
        drop(first);
        assert_eq!(
            budget.left.load(Relaxed),
            1_000,
            "what is left is within the connection's own"
        );
        drop((second, own));
        assert_eq!(
            (greedy.held.load(Relaxed), budget.left.load(Relaxed)),
            (0, 1_000)
        );
        assert!(
            hold(
                &ConnectionMemory::new(Arc::new(Budget::new(usize::MAX))),
                MOST + 1
            )
            .is_none(),
            "one connection has a bound"
        );
    }
}
