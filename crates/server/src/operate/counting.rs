//! How the store of counters did for the latest calls of one core. A call that is answered while all is well only reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidegate_api::Works;

/// Seconds for which a failure counts that nothing followed.
const LAST: u64 = 60;
/// Seconds for which a failure counts when calls were answered since, and those for which an answer counts beside failures.
const BESIDE: u64 = 10;

#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    /// The latest call that the store could have failed was failed by it.
    failing: AtomicBool,
    /// The seconds of the latest failure, and of the latest call that was answered after one. 0: there was none.
    failed: AtomicU64,
    answered: AtomicU64,
}

impl StoreHealth {
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

    fn works(&self, now: u64) -> Works {
        let failed = self.failed.load(Relaxed);
        let answered = self.answered.load(Relaxed);
        let within = |moment: u64, span| moment > 0 && now.saturating_sub(moment) <= span;
        match self.is_failing() {
            false if within(failed, BESIDE) => Works::Partly,
            true if within(failed, BESIDE) && within(answered, BESIDE) => Works::Partly,
            true if within(failed, LAST) => Works::No,
            _ => Works::Yes,
        }
    }
}

/// How the store did for all cores. One that has nothing to do knows nothing.
pub(crate) fn all<'s>(cores: impl Iterator<Item = &'s StoreHealth>, now: u64) -> Works {
    let each: Vec<Works> = cores.map(|core| core.works(now)).collect();
    let worst = [Works::Partly, Works::No]
        .into_iter()
        .find(|works| each.contains(works));
    worst.unwrap_or(Works::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_latest_calls_found_is_what_works() {
        let idle = StoreHealth::default();
        let store = StoreHealth::default();
        let check = |now: u64, expected: Works| {
            assert_eq!(all([&idle, &store].into_iter(), now), expected, "{now}")
        };
        check(100, Works::Yes);
        store.failed(100);
        check(100, Works::No);
        check(160, Works::No);
        check(161, Works::Yes);
        store.answered(105);
        check(106, Works::Partly);
        check(111, Works::Yes);
        store.failed(112);
        check(112, Works::Partly);
        store.failed(116);
        check(116, Works::No);
    }
}
