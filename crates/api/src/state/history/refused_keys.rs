//! Refusals of the last day by key: in steps of a minute for an hour, and then of an hour.

use std::collections::VecDeque;
use std::sync::Mutex;

use hashbrown::HashMap;
use tidegate_ratelimit::{Caller, Entry, KeyMinute, Timestamp, TopKey};

use crate::http::lock;

/// Keys that are kept. With the longest keys they take less than 2 MiB; a key that is refused again
/// replaces the one that was not refused for the longest time.
const MAX_KEYS: usize = 512;
const MINUTES_OF_HOUR: u64 = 60;
const MINUTES_OF_DAY: u64 = 24 * MINUTES_OF_HOUR;
const MINUTE_MICROS: u64 = 60_000_000;

/// Refusals of the last day.
#[derive(Debug, Default)]
pub(super) struct RefusedKeys(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    by_name: HashMap<KeyName, RefusedKey>,
    /// Whether a key was replaced.
    has_evicted: bool,
}

/// A key as it was refused. What is long is cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct KeyName {
    pub(crate) domain: String,
    pub(crate) entries: Vec<Entry>,
    pub(crate) is_cut: bool,
}

#[derive(Debug, Default)]
struct RefusedKey {
    /// Counts of minutes of the last hour, and of hours before it; the oldest first.
    minutes: VecDeque<Bucket>,
    hours: VecDeque<Bucket>,
    is_estimate: bool,
    /// Times of the first and of the latest refusal, by caller.
    refused_at: [Option<FirstAndLast>; 2],
}

/// Counts of a minute or an hour.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Its first minute, counted from 1970.
    start: u64,
    hits: u64,
    /// Refusals by caller.
    refused: [u64; 2],
}

#[derive(Debug, Clone, Copy)]
struct FirstAndLast {
    first: Timestamp,
    last: Timestamp,
}

/// The steps of a range, in minutes. The last one contains the current minute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) minutes: u64,
    pub(crate) count: usize,
}

/// Refusals of a range.
#[derive(Debug)]
pub(crate) struct RefusedInRange {
    /// End of the last step.
    pub(crate) until: Timestamp,
    pub(crate) keys: Vec<RefusedCounts>,
    /// Whether all keys that were refused are known.
    pub(crate) is_complete: bool,
}

/// Refusals of a key to one kind of caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RefusedCounts {
    pub(crate) key: KeyName,
    pub(crate) caller: Caller,
    /// Hits of the key in the range, since its first refusal.
    pub(crate) hits: u64,
    pub(crate) refused: u64,
    pub(crate) first_at: Timestamp,
    pub(crate) last_at: Timestamp,
    pub(crate) is_estimate: bool,
    /// Refusals in each step, the oldest first.
    pub(crate) points: Vec<u64>,
}

impl Bucket {
    /// Adds a minute. A request may have any number of hits.
    fn add(&mut self, minute: &Self) {
        self.hits = self.hits.saturating_add(minute.hits);
        for (sum, refused) in self.refused.iter_mut().zip(minute.refused) {
            *sum = sum.saturating_add(refused);
        }
    }
}

impl RefusedKeys {
    /// Sets the counts of a minute, which may have grown since.
    pub(super) fn record(&self, minute: &KeyMinute) {
        let mut keys = lock(&self.0);
        for key in &minute.keys {
            keys.record(key, minute.start);
        }
        keys.has_evicted |= !minute.is_complete;
    }

    /// Returns all keys that were refused in the steps up to the time `now`.
    pub(super) fn in_range(&self, steps: Steps, now: Timestamp) -> RefusedInRange {
        let keys = lock(&self.0);
        let end = (minute_of(now) / steps.minutes + 1) * steps.minutes;
        let first = end.saturating_sub(steps.minutes * steps.count as u64);
        let counts = keys.by_name.iter().flat_map(|(name, key)| {
            [Caller::Request, Caller::Job]
                .into_iter()
                .filter_map(move |caller| key.counts(name, caller, first, steps))
        });
        RefusedInRange {
            until: Timestamp(end * MINUTE_MICROS),
            keys: counts.collect(),
            is_complete: !keys.has_evicted,
        }
    }
}

impl Keys {
    fn record(&mut self, counted: &TopKey, start: Timestamp) {
        let name = KeyName {
            domain: counted.domain.clone(),
            entries: counted.entries.clone(),
            is_cut: counted.is_cut,
        };
        let is_refused = counted.refused.iter().any(|refused| refused.count > 0);
        if !self.by_name.contains_key(&name) {
            if !is_refused {
                return;
            }
            if self.by_name.len() == MAX_KEYS {
                self.evict();
            }
        }
        self.by_name.entry(name).or_default().record(counted, start);
    }

    /// Removes the key that was not refused for the longest time.
    fn evict(&mut self) {
        let oldest = self.by_name.iter().min_by_key(|(_, key)| key.last_at());
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.by_name.remove(&name);
            self.has_evicted = true;
        }
    }
}

impl RefusedKey {
    fn last_at(&self) -> Option<Timestamp> {
        self.refused_at.iter().flatten().map(|at| at.last).max()
    }

    fn record(&mut self, counted: &TopKey, start: Timestamp) {
        let start = minute_of(start);
        self.is_estimate |= counted.is_estimate;
        for (known, refused) in self.refused_at.iter_mut().zip(counted.refused) {
            if refused.count > 0 {
                let first = known.map_or(refused.first_at, |known| known.first);
                let last = refused.last_at;
                *known = Some(FirstAndLast { first, last });
            }
        }
        let refused = counted.refused.map(|refused| refused.count);
        let same = self
            .minutes
            .iter_mut()
            .rev()
            .find(|bucket| bucket.start == start);
        if let Some(bucket) = same {
            // A key that left its slot and came back would be counted from 0 again.
            bucket.hits = bucket.hits.max(counted.hits);
            bucket.refused = [0, 1].map(|caller| bucket.refused[caller].max(refused[caller]));
            return;
        }
        // Minutes after this one are of a clock that was set back.
        self.minutes.retain(|bucket| bucket.start < start);
        self.hours.retain(|bucket| bucket.start <= start);
        self.minutes.push_back(Bucket {
            start,
            hits: counted.hits,
            refused,
        });
        self.fold(start);
    }

    /// Moves minutes that are an hour old to their hour, and forgets what is a day old.
    fn fold(&mut self, now: u64) {
        while let Some(old) = self.minutes.front().copied()
            && old.start + MINUTES_OF_HOUR <= now
        {
            self.minutes.pop_front();
            let start = old.start / MINUTES_OF_HOUR * MINUTES_OF_HOUR;
            match self.hours.back_mut() {
                Some(hour) if hour.start == start => hour.add(&old),
                _ => self.hours.push_back(Bucket { start, ..old }),
            }
        }
        while self
            .hours
            .front()
            .is_some_and(|old| old.start + MINUTES_OF_DAY <= now)
        {
            self.hours.pop_front();
        }
    }

    /// Returns the counts of the steps that begin with the minute `first`. `None` if there was no
    /// refusal to this caller.
    fn counts(
        &self,
        name: &KeyName,
        caller: Caller,
        first: u64,
        steps: Steps,
    ) -> Option<RefusedCounts> {
        let at = self.refused_at[caller as usize]?;
        let mut points = vec![0_u64; steps.count];
        let mut hits = 0;
        let mut first_minute = None;
        let buckets = self.hours.iter().chain(&self.minutes);
        for bucket in buckets.filter(|bucket| bucket.start >= first) {
            let step = usize::try_from((bucket.start - first) / steps.minutes).ok()?;
            let refused = bucket.refused[caller as usize];
            // A minute after the range: the clock was set back.
            let Some(point) = points.get_mut(step) else {
                continue;
            };
            *point = point.saturating_add(refused);
            hits = bucket.hits.saturating_add(hits);
            if refused > 0 {
                first_minute.get_or_insert(bucket.start);
            }
        }
        Some(RefusedCounts {
            key: name.clone(),
            caller,
            hits,
            refused: points.iter().copied().fold(0, u64::saturating_add),
            first_at: at.first.max(Timestamp(first_minute? * MINUTE_MICROS)),
            last_at: at.last,
            is_estimate: self.is_estimate,
            points,
        })
    }
}

fn minute_of(at: Timestamp) -> u64 {
    at.0 / MINUTE_MICROS
}

#[cfg(test)]
mod tests {
    use tidegate_ratelimit::Refused;

    use super::*;

    const HOUR: Steps = Steps {
        minutes: 3,
        count: 20,
    };
    const DAY: Steps = Steps {
        minutes: 60,
        count: 24,
    };
    /// A whole day, and so a whole hour.
    const START: u64 = 20_000 * MINUTES_OF_DAY;

    fn at(minute: u64) -> Timestamp {
        Timestamp((START + minute) * MINUTE_MICROS)
    }

    /// Ten hits of a key in a minute, of which `count` were refused in its fifth second.
    fn minute(minute: u64, key: &str, count: u64) -> KeyMinute {
        let refused_at = Timestamp(at(minute).0 + 5_000_000);
        let refused = Refused {
            count,
            first_at: refused_at,
            last_at: refused_at,
        };
        KeyMinute {
            is_complete: true,
            start: at(minute),
            keys: vec![TopKey {
                domain: key.to_owned(),
                entries: Vec::new(),
                is_cut: false,
                hits: 10,
                is_estimate: false,
                refused: [refused, Refused::default()],
            }],
        }
    }

    /// Refusals of the only key, its hits, and the steps with refusals.
    fn shown(keys: &RefusedKeys, steps: Steps, now: u64) -> Option<(u64, u64, Vec<usize>)> {
        let found = keys.in_range(steps, at(now));
        let counts = found.keys.first()?;
        let is_refused = |step: &usize| counts.points[*step] > 0;
        let refused = (0..steps.count).filter(is_refused).collect();
        Some((counts.refused, counts.hits, refused))
    }

    #[test]
    fn a_minute_counts_once_however_often_it_is_read() {
        let keys = RefusedKeys::default();
        keys.record(&minute(0, "a", 0));
        assert_eq!(shown(&keys, HOUR, 0), None, "it was not refused");
        for count in [1, 4, 4, 2] {
            keys.record(&minute(1, "a", count));
        }
        keys.record(&minute(2, "a", 0));
        assert_eq!(shown(&keys, HOUR, 2), Some((4, 20, vec![19])));
        let found = keys.in_range(HOUR, at(2));
        assert_eq!(found.until, at(3));
        let counts = &found.keys[0];
        assert_eq!(counts.first_at, Timestamp(at(1).0 + 5_000_000));
        assert_eq!(
            (counts.last_at, counts.caller),
            (counts.first_at, Caller::Request)
        );
        assert_eq!(shown(&keys, HOUR, 59), Some((4, 20, vec![0])));
        assert_eq!(shown(&keys, HOUR, 60), None, "it is too old");
        assert_eq!(shown(&keys, DAY, 63), Some((4, 20, vec![22])));
    }

    #[test]
    fn minutes_become_hours_and_are_forgotten_after_a_day() {
        let keys = RefusedKeys::default();
        for minute_of_days in 0..3 * MINUTES_OF_DAY {
            keys.record(&minute(minute_of_days, "a", 1));
        }
        let now = 3 * MINUTES_OF_DAY - 1;
        assert_eq!(shown(&keys, HOUR, now), Some((60, 600, (0..20).collect())));
        assert_eq!(
            shown(&keys, DAY, now),
            Some((1_440, 14_400, (0..24).collect()))
        );
        let first_at = keys.in_range(DAY, at(now)).keys[0].first_at;
        assert_eq!(first_at, at(2 * MINUTES_OF_DAY));
        let known = &lock(&keys.0).by_name;
        let buckets = known
            .values()
            .map(|key| (key.minutes.len(), key.hours.len()));
        assert_eq!(buckets.collect::<Vec<_>>(), [(60, 23)]);
    }

    #[test]
    fn any_number_of_refusals_can_be_added() {
        let keys = RefusedKeys::default();
        for now in [0, 1, 70] {
            let mut huge = minute(now, "a", u64::MAX);
            huge.keys[0].hits = u64::MAX;
            keys.record(&huge);
        }
        let shown = shown(&keys, DAY, 70);
        assert_eq!(shown, Some((u64::MAX, u64::MAX, vec![22, 23])));
    }

    #[test]
    fn a_clock_that_is_set_back_forgets_what_is_later() {
        let keys = RefusedKeys::default();
        for now in [500, 501, 100, 101] {
            keys.record(&minute(now, "a", 1));
        }
        assert_eq!(shown(&keys, HOUR, 101), Some((2, 20, vec![19])));
    }

    #[test]
    fn the_key_that_was_not_refused_for_longest_is_replaced() {
        let keys = RefusedKeys::default();
        for number in 0..=MAX_KEYS as u64 {
            assert!(keys.in_range(DAY, at(number)).is_complete);
            keys.record(&minute(number, &format!("k{number}"), 1));
        }
        let found = keys.in_range(DAY, at(MAX_KEYS as u64));
        assert_eq!((found.keys.len(), found.is_complete), (MAX_KEYS, false));
        assert!(found.keys.iter().all(|counts| counts.key.domain != "k0"));
    }
}
