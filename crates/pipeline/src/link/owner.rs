//! The interface between a connection and its node.

use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::{CloseReason, Counters, LinkEvent};
use crate::batch::{Batch, Load};
use crate::call::CallGroup;
use crate::config::Config;

/// Identifies one connection of a node, for the lifetime of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkId(pub(crate) u64);

/// Report of a connection to its node at each turn.
pub(crate) struct LinkReport<'a> {
    pub(crate) link: LinkId,
    /// Load that was answered or dropped since the last turn.
    pub(crate) released: Load,
    /// Time at which the oldest command in flight was written.
    pub(crate) oldest: Option<Instant>,
    /// Recent mean time between a write and its last reply.
    pub(crate) reply_time: Duration,
    pub(crate) waker: &'a Waker,
}

/// The node of a connection. Tests use another implementation.
pub(crate) trait LinkOwner: Debug + Send {
    /// The node's address, for messages.
    fn name(&self) -> &Arc<str>;

    fn config(&self) -> &Config;

    fn counters(&self) -> &Counters;

    /// Moves the groups for this connection into `groups`. The connection is woken through the
    /// waker of the report when there are more.
    ///
    /// # Errors
    /// The connection should close.
    fn take_groups(
        &self,
        report: &LinkReport<'_>,
        groups: &mut Vec<CallGroup>,
    ) -> Result<(), CloseReason>;

    /// Reports an event of the link to the node.
    fn report(&self, link: LinkId, event: LinkEvent);

    /// Returns whether an idle connection should close: no load is queued or in flight on it, and
    /// the other connections are enough. After true it gets no more groups.
    fn may_close(&self, link: LinkId) -> bool;

    /// Adds commands that must be sent although their callers have left.
    fn add_left_behind(&self, batch: Batch);

    /// Reports that the connection has ended.
    fn detach(&self, link: LinkId, reason: &Arc<str>);

    /// Reports that the runtime of all tasks of the node has ended, and the connection with it.
    fn on_runtime_end(&self, link: LinkId, reason: &Arc<str>);
}
