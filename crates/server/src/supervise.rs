//! Who may still work: what every task listens to, and who waits for them.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Handed to every task; a clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    /// Finish what was begun, begin nothing.
    pub(crate) drain: CancellationToken,
    /// Stop.
    pub(crate) stop: CancellationToken,
    /// Every task but those of single calls, which their connection waits for.
    pub(crate) tasks: TaskTracker,
}
