//! What a connection needs of its node.

use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::batch::load::Load;
use crate::call::group::Group;
use crate::config::Config;
use crate::link::state::{CloseReason, Event};
use crate::stats::Counters;

/// Names one connection of a node, for as long as the node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkId(pub(crate) u64);

/// What a connection tells its node at each turn.
pub(crate) struct LinkReport<'a> {
    pub(crate) link: LinkId,
    /// What was answered or dropped since the last turn.
    pub(crate) released: Load,
    /// When the oldest command in flight was written.
    pub(crate) oldest: Option<Instant>,
    /// Recent mean time between a write and its last reply.
    pub(crate) reply_time: Duration,
    pub(crate) waker: &'a Waker,
}

/// What a connection needs of its node. Tests put another one in its place.
pub(crate) trait LinkOwner: Debug + Send {
    /// The node's address, for messages.
    fn name(&self) -> &Arc<str>;

    fn config(&self) -> &Config;

    fn counters(&self) -> &Counters;

    /// Moves the groups for this connection into `groups`. The connection is woken through the turn's waker when there are
    /// more.
    ///
    /// # Errors
    /// The connection should close.
    fn take(&self, turn: &LinkReport<'_>, groups: &mut Vec<Group>) -> Result<(), CloseReason>;

    /// Tells the node what happened to the link.
    fn report(&self, link: LinkId, event: Event);

    /// Whether a connection that was idle for long should close: nothing is queued or in flight on it, and the others are
    /// enough. After true it gets no more groups.
    fn may_close(&self, link: LinkId) -> bool;

    /// Takes commands that must be sent although their callers have left.
    fn left_behind(&self, batch: Batch);

    /// Tells the node that the connection has ended.
    fn detach(&self, link: LinkId, reason: &Arc<str>);

    /// Tells the node that the runtime of all of its tasks has ended, and the connection with it.
    fn stopped(&self, link: LinkId, reason: &Arc<str>);
}
