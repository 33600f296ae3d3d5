//! Counts of the outcomes of a client's commands.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::batch::unfinished::SlotState;
use crate::client::retry::Retry;
use crate::link::stats::{Stats, count};
use crate::outcome::Outcome;

/// Counts of the outcomes that a client returned to its callers, and of retries and redirects.
///
/// Each core has its own client, so that no two cores write to one counter.
#[derive(Debug, Default)]
pub(crate) struct CommandCounts {
    replies: AtomicU64,
    server_errors: AtomicU64,
    not_sent: AtomicU64,
    rejected: AtomicU64,
    unknown: AtomicU64,
    retries: AtomicU64,
    moved: AtomicU64,
    ask: AtomicU64,
}

impl CommandCounts {
    /// Counts commands that all ran: the usual case.
    #[inline]
    pub(crate) fn record_all_ran(&self, commands: usize) {
        count(&self.replies, commands);
    }

    pub(crate) fn record_outcomes(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let counter = match outcome {
                Outcome::Reply(_) => &self.replies,
                Outcome::ServerError(_) => &self.server_errors,
                Outcome::NotSent(_) => &self.not_sent,
                Outcome::Rejected(_) => &self.rejected,
                Outcome::Unknown(_) => &self.unknown,
            };
            count(counter, 1);
        }
    }

    /// Counts a redirect that is followed.
    pub(crate) fn record_redirect(&self, retry: &Retry) {
        match retry {
            Retry::Redirect(_, SlotState::Owned) => count(&self.moved, 1),
            Retry::Redirect(_, SlotState::Importing) => count(&self.ask, 1),
            Retry::Wait | Retry::GiveUp => {}
        }
    }

    /// Counts commands that are sent again.
    pub(crate) fn record_retries(&self, commands: usize) {
        count(&self.retries, commands);
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            ended_with_reply: self.replies.load(Relaxed),
            ended_with_server_error: self.server_errors.load(Relaxed),
            ended_not_sent: self.not_sent.load(Relaxed),
            ended_rejected: self.rejected.load(Relaxed),
            ended_unknown: self.unknown.load(Relaxed),
            retries: self.retries.load(Relaxed),
            moved: self.moved.load(Relaxed),
            ask: self.ask.load(Relaxed),
            ..Stats::default()
        }
    }
}
