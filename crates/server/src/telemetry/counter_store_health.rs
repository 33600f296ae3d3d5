//! Health of the counter store in the latest calls of one core. While it is healthy, a successful
//! call only reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidegate_api::Availability;

/// Time in seconds for which a failure counts if no later call succeeded.
const LAST: u64 = 60;
/// Time in seconds for which a failure counts if later calls succeeded, and for which a success
/// counts beside failures.
const BESIDE: u64 = 10;

#[derive(Debug, Default)]
pub(crate) struct CounterStoreHealth {
    /// Whether the store failed the latest call that needed it.
    failing: AtomicBool,
    /// The second of the latest failure, and of the latest success after a failure. 0 if there was
    /// none.
    failed: AtomicU64,
    answered: AtomicU64,
}

impl CounterStoreHealth {
    pub(crate) fn failed(&self, second: u64) {
        self.failed.store(second, Relaxed);
        self.failing.store(true, Relaxed);
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    pub(crate) fn answered(&self, second: u64) {
        self.answered.store(second, Relaxed);
        self.failing.store(false, Relaxed);
    }

    fn works(&self, now: u64) -> Availability {
        let failed = self.failed.load(Relaxed);
        let answered = self.answered.load(Relaxed);
        let within = |moment: u64, span| moment > 0 && now.saturating_sub(moment) <= span;
        match self.is_failing() {
            false if within(failed, BESIDE) => Availability::Degraded,
            true if within(failed, BESIDE) && within(answered, BESIDE) => Availability::Degraded,
            true if within(failed, LAST) => Availability::Down,
            _ => Availability::Up,
        }
    }
}

/// Health of the store for all cores. A core without calls does not count.
pub(crate) fn all<'s>(
    cores: impl Iterator<Item = &'s CounterStoreHealth>,
    now: u64,
) -> Availability {
    let each: Vec<Availability> = cores.map(|core| core.works(now)).collect();
    let worst = [Availability::Degraded, Availability::Down]
        .into_iter()
        .find(|works| each.contains(works));
    worst.unwrap_or(Availability::Up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_latest_calls_found_is_what_works() {
        let idle = CounterStoreHealth::default();
        let store = CounterStoreHealth::default();
        let check = |now: u64, expected: Availability| {
            assert_eq!(all([&idle, &store].into_iter(), now), expected, "{now}")
        };
        check(100, Availability::Up);
        store.failed(100);
        check(100, Availability::Down);
        check(160, Availability::Down);
        check(161, Availability::Up);
        store.answered(105);
        check(106, Availability::Degraded);
        check(111, Availability::Up);
        store.failed(112);
        check(112, Availability::Degraded);
        store.failed(116);
        check(116, Availability::Down);
    }
}
