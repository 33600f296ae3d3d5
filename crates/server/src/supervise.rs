//! Supervision: what every task listens to, and who waits for its end.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tells tasks when to end, and waits for them. Every task has a clone, and all clones are one supervisor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Supervisor {
    /// Cancelled first: finish what was begun, and begin nothing new.
    pub(crate) drain: CancellationToken,
    /// Cancelled last: stop at once.
    pub(crate) stop: CancellationToken,
    /// Every task of the server, except those of single calls: their connection waits for them.
    pub(crate) tasks: TaskTracker,
}
