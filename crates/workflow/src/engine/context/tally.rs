//! What is counted of attempts, for whoever operates a server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

/// The ends of the first classes of durations, in milliseconds. All that took longer is in one more class.
pub const CLASSES: [u64; 8] = [10, 100, 500, 1_000, 10_000, 60_000, 600_000, 3_600_000];

/// The most handlers that are counted by name, and the most bytes of a name: definitions choose them.
const HANDLERS: usize = 500;
const NAME: usize = 256;
/// The name under which all others are counted.
const OTHERS: &str = "_overflow";

/// What was counted since the start.
#[derive(Debug, Default)]
pub struct Tally {
    handlers: Mutex<HashMap<String, [Durations; 2]>>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Succeeded = 0,
    Failed = 1,
}

/// How long attempts took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many are in each of [`CLASSES`], and how many took longer.
    pub classes: [u64; CLASSES.len() + 1],
    /// All of them together.
    pub sum: Duration,
}

/// How long attempts of a handler took that were reported to this server, from their claim to their report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerTimes {
    /// Its name.
    pub handler: String,
    /// Attempts that succeeded.
    pub succeeded: Durations,
    /// Attempts that failed.
    pub failed: Durations,
}

impl Durations {
    fn add(&mut self, took: Duration) {
        let millis = took.as_millis() as u64;
        self.classes[CLASSES.partition_point(|&end| end < millis)] += 1;
        self.sum += took;
    }
}

impl Tally {
    pub(crate) fn add_attempt(&self, handler: &str, ended: Ended, took: Duration) {
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let room = handlers.len() < HANDLERS && handler.len() <= NAME;
        let known = handlers.get_mut(handler);
        let times = match known {
            Some(times) => times,
            None => handlers.entry_ref(if room { handler } else { OTHERS }).or_default(),
        };
        times[ended as usize].add(took);
    }

    /// The handlers by name.
    #[must_use]
    pub fn handlers(&self) -> Vec<HandlerTimes> {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let times = |(handler, &[succeeded, failed]): (&String, &[Durations; 2])| HandlerTimes {
            handler: handler.clone(),
            succeeded,
            failed,
        };
        let mut all: Vec<HandlerTimes> = handlers.iter().map(times).collect();
        drop(handlers);
        all.sort_by(|left, right| left.handler.cmp(&right.handler));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_by_handler_and_names_are_bounded() {
        let tally = Tally::default();
        tally.add_attempt("mail", Ended::Succeeded, Duration::from_millis(10));
        tally.add_attempt("mail", Ended::Failed, Duration::from_millis(11));
        tally.add_attempt("mail", Ended::Failed, Duration::from_secs(7_200));
        let mail = tally.handlers().remove(0);
        assert_eq!(mail.succeeded.classes, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(mail.failed.classes, [0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(mail.failed.sum, Duration::from_millis(7_200_011));
        for number in 0..10_000 {
            tally.add_attempt(&format!("h{number}"), Ended::Succeeded, Duration::ZERO);
        }
        tally.add_attempt(&"x".repeat(300), Ended::Succeeded, Duration::ZERO);
        tally.add_attempt("mail", Ended::Succeeded, Duration::ZERO);
        let all = tally.handlers();
        assert_eq!(all.len(), HANDLERS + 1);
        assert_eq!(all[0].handler, OTHERS);
        assert_eq!(all.iter().map(|times| times.succeeded.classes[0]).sum::<u64>(), 10_003);
    }
}
