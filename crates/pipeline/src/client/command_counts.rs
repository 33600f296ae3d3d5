//! Counts of the outcomes of a client's commands.

use super::Retry;
use crate::batch::SlotState;
use crate::link::{Counters, count};
use crate::outcome::Outcome;

impl Counters {
    /// Counts commands that all ran: the usual case.
    #[inline]
    pub(crate) fn record_all_ran(&self, commands: usize) {
        count(&self.ended_with_reply, commands);
    }

    pub(crate) fn record_outcomes(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let counter = match outcome {
                Outcome::Reply(_) => &self.ended_with_reply,
                Outcome::ServerError(_) => &self.ended_with_server_error,
                Outcome::NotSent(_) => &self.ended_not_sent,
                Outcome::Rejected(_) => &self.ended_rejected,
                Outcome::Unknown(_) => &self.ended_unknown,
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
}
