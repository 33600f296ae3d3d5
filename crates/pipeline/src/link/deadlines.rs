//! Wakes callers whose deadline has passed.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum interval between two searches for expired calls: the maximum delay of a wake.
const SEARCH_AT_MOST_EVERY: Duration = Duration::from_millis(1);

/// The earliest deadline of the groups that a connection holds, so that one timer is enough for all
/// of them.
///
/// **Invariant:** no deadline of a group is more than [`MIN_SEARCH_INTERVAL`] before `earliest`.
/// `earliest` may belong to a finished group: then one search finds nothing.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    earliest: Option<Instant>,
}

impl Deadlines {
    /// Adds the deadline of a group.
    #[inline]
    pub(crate) fn add(&mut self, deadline: Instant) {
        self.earliest = Some(
            self.earliest
                .map_or(deadline, |earliest| earliest.min(deadline)),
        );
    }

    /// Returns the next time to call [`Deadlines::expire`] if it is before `limit`, otherwise
    /// `limit`.
    #[inline]
    pub(crate) fn before(&self, limit: Instant) -> Instant {
        self.earliest.map_or(limit, |earliest| earliest.min(limit))
    }

    /// Calls `expire` for each group in `groups` whose deadline has passed.
    #[inline]
    pub(crate) fn expire<T>(
        &mut self,
        now: Instant,
        owed: impl Iterator<Item = (Instant, T)>,
        mut expire: impl FnMut(T),
    ) {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return;
        }
        self.earliest = None;
        for (deadline, group) in owed {
            if deadline <= now {
                expire(group);
            } else {
                self.add(deadline);
            }
        }
        self.earliest = self
            .earliest
            .map(|earliest| earliest.max(now + SEARCH_AT_MOST_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds deadlines at the given milliseconds, searches at `now`, and compares which expire and
    /// when the next search is.
    fn check(deadlines: &[u64], now: u64, expired: &[u64], next: Option<u64>) {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut kept = Deadlines::default();
        deadlines
            .iter()
            .for_each(|&deadline| kept.add(at(deadline)));
        let mut found = Vec::new();
        kept.expire(
            at(now),
            deadlines.iter().map(|&deadline| (at(deadline), deadline)),
            |deadline| {
                found.push(deadline);
            },
        );
        assert_eq!(found, expired, "{deadlines:?} at {now}");
        assert_eq!(kept.earliest, next.map(at), "{deadlines:?} at {now}");
    }

    #[test]
    fn the_search_finds_what_has_passed_and_when_to_search_again() {
        check(&[], 5, &[], None);
        check(&[10, 20], 5, &[], Some(10));
        check(&[20, 10, 30], 10, &[10], Some(20));
        check(&[10, 10], 10, &[10, 10], None);
        check(&[5, 40], 30, &[5], Some(40));
    }

    #[test]
    fn a_search_is_not_repeated_at_once() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        deadlines.add(start);
        let next = start + Duration::from_micros(100);
        deadlines.expire(start, [(start, ()), (next, ())].into_iter(), |()| {});
        assert_eq!(
            deadlines.before(start + Duration::from_secs(1)),
            start + SEARCH_AT_MOST_EVERY
        );
    }
}
