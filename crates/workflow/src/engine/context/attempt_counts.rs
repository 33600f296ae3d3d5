//! Counts and durations of attempts by handler, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use crate::time::Timestamp;

/// Upper bounds of the classes of durations, in milliseconds. One more class has the longer
/// attempts.
pub const CLASSES: [u64; 8] = [10, 100, 500, 1_000, 10_000, 60_000, 600_000, 3_600_000];

/// Most handlers that are counted by name, and most bytes of a name: definitions choose the names.
const HANDLERS: usize = 500;
const NAME: usize = 256;
/// Name under which all other handlers are counted.
const OTHERS: &str = "_overflow";
/// Time without an attempt after which the name of a handler may be evicted.
const UNUSED: Duration = Duration::from_secs(3_600);

/// Counts of the attempts since the start of the server.
#[derive(Debug, Default)]
pub struct AttemptCounts {
    handlers: Mutex<HashMap<String, HandlerHistogram>>,
    /// Time of the latest sweep, and of the latest search for names to evict, in microseconds.
    now: AtomicU64,
    looked: AtomicU64,
}

/// Counts of one handler.
#[derive(Debug, Clone, Copy, Default)]
struct HandlerHistogram {
    ended: [Durations; 2],
    /// Time of the latest attempt.
    used: Timestamp,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Succeeded = 0,
    Failed = 1,
}

/// Durations of attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations {
    /// Number of attempts in each of [`CLASS_BOUNDS_MS`], and of longer ones.
    pub classes: [u64; CLASSES.len() + 1],
    /// Sum of the durations.
    pub sum: Duration,
}

/// Durations of one handler's attempts that were reported to this server, from their claim to their
/// report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerTimes {
    /// Name of the handler.
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

impl AttemptCounts {
    /// Sets the time of the attempts that are counted next.
    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now.store(now.micros(), Relaxed);
    }

    pub(crate) fn add_attempt(&self, handler: &str, ended: Ended, took: Duration) {
        let now = Timestamp::from_micros(self.now.load(Relaxed));
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let times = match handlers.get_mut(handler) {
            Some(times) => times,
            None => {
                let room = handler.len() <= NAME && self.has_room(&mut handlers, now);
                handlers
                    .entry_ref(if room { handler } else { OTHERS })
                    .or_default()
            }
        };
        times.ended[ended as usize].add(took);
        times.used = now;
    }

    /// Whether one more handler may have a name. If there is no room, names without an attempt for
    /// an hour are evicted, at most once a minute.
    fn has_room(&self, handlers: &mut HashMap<String, HandlerHistogram>, now: Timestamp) -> bool {
        const EVICTION_INTERVAL: Duration = Duration::from_secs(60);
        let looked = Timestamp::from_micros(self.looked.load(Relaxed));
        if handlers.len() >= HANDLERS && now.since(looked) >= EVICTION_INTERVAL {
            self.looked.store(now.micros(), Relaxed);
            handlers.retain(|name, times| name == OTHERS || now.since(times.used) < UNUSED);
        }
        handlers.len() < HANDLERS
    }

    /// Returns the durations of all handlers, sorted by name.
    #[must_use]
    pub fn handlers(&self) -> Vec<HandlerTimes> {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let times = |(
            handler,
            &HandlerHistogram {
                ended: [succeeded, failed],
                ..
            },
        ): (&String, &HandlerHistogram)| HandlerTimes {
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
        let tally = AttemptCounts::default();
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
        assert_eq!(
            all.iter()
                .map(|times| times.succeeded.classes[0])
                .sum::<u64>(),
            10_003
        );
    }

    #[test]
    fn handlers_without_attempts_for_an_hour_give_their_names_to_others() {
        let tally = AttemptCounts::default();
        let minute = |minute: u64| tally.set_time(Timestamp::from_micros(minute * 60_000_000));
        let count = |handler: &str| tally.add_attempt(handler, Ended::Succeeded, Duration::ZERO);
        let known = |handler: &str| {
            tally
                .handlers()
                .iter()
                .any(|times| times.handler == handler)
        };
        minute(100);
        (0..HANDLERS).for_each(|number| count(&format!("old{number}")));
        minute(130);
        count("old7");
        count("new");
        assert!(!known("new") && known(OTHERS), "all others are in use");
        minute(161);
        count("new");
        assert!(known("new") && known("old7") && known(OTHERS));
        assert_eq!(tally.handlers().len(), 3);
    }
}
