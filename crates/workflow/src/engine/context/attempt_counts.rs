//! Counts and durations of attempts by handler, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use crate::model::Timestamp;

/// Upper bounds of the classes of durations, in milliseconds. One more class has the longer
/// attempts.
pub const CLASS_BOUNDS_MS: [u64; 8] = [10, 100, 500, 1_000, 10_000, 60_000, 600_000, 3_600_000];

/// Most handlers that are counted by name, and most bytes of a name: definitions choose the names.
const MAX_HANDLERS: usize = 500;
const MAX_NAME_BYTES: usize = 256;
/// Name under which all other handlers are counted.
const OTHER_HANDLERS: &str = "_overflow";
/// Time without an attempt after which the name of a handler may be evicted.
const HANDLER_TTL: Duration = Duration::from_secs(3_600);

/// Counts of the attempts since the start of the server.
#[derive(Debug, Default)]
pub struct AttemptCounts {
    handlers: Mutex<HashMap<String, HandlerHistogram>>,
    /// Time of the latest sweep, and of the latest search for names to evict, in microseconds.
    now: AtomicU64,
    evicted_at: AtomicU64,
}

/// Counts of one handler.
#[derive(Debug, Clone, Copy, Default)]
struct HandlerHistogram {
    by_result: [Durations; 2],
    /// Time of the latest attempt.
    last_used: Timestamp,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptResult {
    Succeeded = 0,
    Failed = 1,
}

/// Durations of attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations {
    /// Number of attempts in each of [`CLASS_BOUNDS_MS`], and of longer ones.
    pub classes: [u64; CLASS_BOUNDS_MS.len() + 1],
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
    fn add(&mut self, duration: Duration) {
        let millis = duration.as_millis() as u64;
        self.classes[CLASS_BOUNDS_MS.partition_point(|&end| end < millis)] += 1;
        self.sum += duration;
    }
}

impl AttemptCounts {
    /// Sets the time of the attempts that are counted next.
    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now.store(now.micros(), Relaxed);
    }

    pub(crate) fn add_attempt(&self, handler: &str, result: AttemptResult, duration: Duration) {
        let now = Timestamp::from_micros(self.now.load(Relaxed));
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let times = match handlers.get_mut(handler) {
            Some(times) => times,
            None => {
                let has_room = handler.len() <= MAX_NAME_BYTES && self.has_room(&mut handlers, now);
                handlers
                    .entry_ref(if has_room { handler } else { OTHER_HANDLERS })
                    .or_default()
            }
        };
        times.by_result[result as usize].add(duration);
        times.last_used = now;
    }

    /// Whether one more handler may have a name. If there is no room, names without an attempt for
    /// an hour are evicted, at most once a minute.
    fn has_room(&self, handlers: &mut HashMap<String, HandlerHistogram>, now: Timestamp) -> bool {
        const EVICTION_INTERVAL: Duration = Duration::from_secs(60);
        let evicted_at = Timestamp::from_micros(self.evicted_at.load(Relaxed));
        if handlers.len() >= MAX_HANDLERS && now.since(evicted_at) >= EVICTION_INTERVAL {
            self.evicted_at.store(now.micros(), Relaxed);
            handlers.retain(|name, times| {
                name == OTHER_HANDLERS || now.since(times.last_used) < HANDLER_TTL
            });
        }
        handlers.len() < MAX_HANDLERS
    }

    /// Returns the durations of all handlers, sorted by name.
    #[must_use]
    pub fn handlers(&self) -> Vec<HandlerTimes> {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let times = |(
            handler,
            &HandlerHistogram {
                by_result: [succeeded, failed],
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
        let counts = AttemptCounts::default();
        counts.add_attempt("mail", AttemptResult::Succeeded, Duration::from_millis(10));
        counts.add_attempt("mail", AttemptResult::Failed, Duration::from_millis(11));
        counts.add_attempt("mail", AttemptResult::Failed, Duration::from_secs(7_200));
        let mail = counts.handlers().remove(0);
        assert_eq!(mail.succeeded.classes, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(mail.failed.classes, [0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(mail.failed.sum, Duration::from_millis(7_200_011));
        for number in 0..10_000 {
            counts.add_attempt(
                &format!("h{number}"),
                AttemptResult::Succeeded,
                Duration::ZERO,
            );
        }
        counts.add_attempt(&"x".repeat(300), AttemptResult::Succeeded, Duration::ZERO);
        counts.add_attempt("mail", AttemptResult::Succeeded, Duration::ZERO);
        let all = counts.handlers();
        assert_eq!(all.len(), MAX_HANDLERS + 1);
        assert_eq!(all[0].handler, OTHER_HANDLERS);
        assert_eq!(
            all.iter()
                .map(|times| times.succeeded.classes[0])
                .sum::<u64>(),
            10_003
        );
    }

    #[test]
    fn handlers_without_attempts_for_an_hour_give_their_names_to_others() {
        let counts = AttemptCounts::default();
        let minute = |minute: u64| counts.set_time(Timestamp::from_micros(minute * 60_000_000));
        let count =
            |handler: &str| counts.add_attempt(handler, AttemptResult::Succeeded, Duration::ZERO);
        let known = |handler: &str| {
            counts
                .handlers()
                .iter()
                .any(|times| times.handler == handler)
        };
        minute(100);
        (0..MAX_HANDLERS).for_each(|number| count(&format!("old{number}")));
        minute(130);
        count("old7");
        count("new");
        assert!(
            !known("new") && known(OTHER_HANDLERS),
            "all others are in use"
        );
        minute(161);
        count("new");
        assert!(known("new") && known("old7") && known(OTHER_HANDLERS));
        assert_eq!(counts.handlers().len(), 3);
    }
}
