//! Dynamic series: counts under names that contain data of clients. These are limits that a request
//! brings, limits whose name has values of the request, and unknown domains.
//!
//! Each core collects them in its own map. A reader takes the whole map, which locks the core only
//! for a moment, and adds it to the totals.
//!
//! **Invariant:** names are bounded in number and bytes, on each core and in the totals. Counts
//! beyond these limits are added to one overflow series.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tidegate_ratelimit::LimitDelta;

use super::limit_counts::LimitCounts;

/// Size limit of the name of a limit in bytes. Typical names are paths of keys and values.
const LIMIT_BYTES: usize = 1024;
/// Size limit of all names of limits in bytes. The default limit of 100,000 names leaves 160 bytes
/// on average.
const ALL_LIMITS_BYTES: usize = 16 << 20;
/// Size limit of the name of an unknown domain in bytes.
const DOMAIN_BYTES: usize = 256;
/// Limit of unknown domains with a name. They are configuration mistakes, and some names suffice to
/// find them.
const DOMAINS: usize = 1_000;
/// Size limit of the names on one core between two reads, in bytes.
const CORE_BYTES: usize = 4 << 20;
/// Overhead of a name in bytes: its entry in a map, with the counts.
const NAME_BYTES: usize = 100;
/// Idle time after which a name may be forgotten for a new one.
const IDLE: Duration = Duration::from_secs(3600);
/// Minimum interval between two searches for idle names.
const SWEEP: Duration = Duration::from_secs(60);

/// Counts of one core since the last read.
#[derive(Debug, Default)]
pub(super) struct DynamicSeries {
    limits: HashMap<Box<str>, DynamicCounts>,
    /// Counts of limits beyond the limit of names.
    more_limits: Option<LimitCounts>,
    unknown_domains: HashMap<Box<str>, u64>,
    more_domains: u64,
    /// Bytes of all names here.
    bytes: usize,
}

/// Counts under a name, with the slot of the limit in the configuration.
#[derive(Debug)]
struct DynamicCounts {
    counts: LimitCounts,
    of: Option<u32>,
}

impl DynamicSeries {
    /// Adds hits under a name, if there are fewer than `max_names` names and bytes are left. `slot`
    /// is the slot of the limit in the configuration.
    pub(super) fn add(&mut self, name: &str, of: Option<u32>, tally: &LimitDelta, most: usize) {
        if let Some(made) = self.limits.get_mut(name) {
            made.counts.add(tally);
        } else if name.len() <= LIMIT_BYTES && self.limits.len() < most && self.has_room(name) {
            let new = DynamicCounts {
                counts: LimitCounts::default(),
                of,
            };
            self.limits
                .entry(name.into())
                .or_insert(new)
                .counts
                .add(tally);
        } else {
            self.more_limits.get_or_insert_default().add(tally);
        }
    }

    /// Adds descriptors of an unknown domain, within the limits of names and bytes.
    pub(super) fn add_unknown_domain(&mut self, name: &str, descriptors: u64, most: usize) {
        if let Some(count) = self.unknown_domains.get_mut(name) {
            *count += descriptors;
        } else if name.len() <= DOMAIN_BYTES
            && self.unknown_domains.len() < most.min(DOMAINS)
            && self.has_room(name)
        {
            self.unknown_domains.insert(name.into(), descriptors);
        } else {
            self.more_domains += descriptors;
        }
    }

    /// Reserves the bytes of a new name, if the limit allows it.
    fn has_room(&mut self, name: &str) -> bool {
        let bytes = self.bytes + name.len() + NAME_BYTES;
        let fits = bytes <= CORE_BYTES;
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

/// Totals of all cores since the start.
#[derive(Debug)]
pub(super) struct MadeTotals {
    pub(super) limits: Names<LimitCounts>,
    pub(super) more_limits: Option<LimitCounts>,
    pub(super) unknown_domains: Names<u64>,
    pub(super) more_domains: u64,
    /// Sum over all limits, including forgotten names.
    pub(super) sum: LimitCounts,
    /// Counts by the slot of the limit in the configuration, without the overflow of the cores.
    of_slots: HashMap<u32, LimitCounts>,
}

/// Map of names with a limit of bytes.
#[derive(Debug)]
pub(super) struct Names<V> {
    names: HashMap<Box<str>, Known<V>>,
    bytes: usize,
    most_bytes: usize,
    swept: Instant,
}

#[derive(Debug)]
struct Known<V> {
    value: V,
    /// Time of the latest read with new counts.
    seen: Instant,
}

impl MadeTotals {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            limits: Names::new(ALL_LIMITS_BYTES, now),
            more_limits: None,
            unknown_domains: Names::new(DOMAINS * DOMAIN_BYTES, now),
            more_domains: 0,
            sum: LimitCounts::default(),
            of_slots: HashMap::new(),
        }
    }

    /// Adds the counts of a core, under at most `max_names` names.
    pub(super) fn add(&mut self, names: DynamicSeries, most: usize, now: Instant) {
        for (name, DynamicCounts { counts, of }) in names.limits {
            self.sum.merge(&counts);
            if let Some(slot) = of {
                self.of_slots.entry(slot).or_default().merge(&counts);
            }
            match self.limits.entry(name, most, now) {
                Some(value) => value.merge(&counts),
                None => self.more_limits.get_or_insert_default().merge(&counts),
            }
        }
        if let Some(counts) = names.more_limits {
            self.sum.merge(&counts);
            self.more_limits.get_or_insert_default().merge(&counts);
        }
        for (name, count) in names.unknown_domains {
            match self.unknown_domains.entry(name, most.min(DOMAINS), now) {
                Some(value) => *value += count,
                None => self.more_domains += count,
            }
        }
        self.more_domains += names.more_domains;
    }
}

impl MadeTotals {
    /// Counts of the limit with this slot.
    pub(super) fn of_slot(&self, slot: u32) -> LimitCounts {
        self.of_slots.get(&slot).copied().unwrap_or_default()
    }

    /// Removes the counts of a limit whose slot is freed.
    pub(super) fn clear(&mut self, slot: u32) {
        self.of_slots.remove(&slot);
    }
}

impl<V: Default> Names<V> {
    fn new(most_bytes: usize, now: Instant) -> Self {
        Self {
            names: HashMap::new(),
            bytes: 0,
            most_bytes,
            swept: now,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.names
            .iter()
            .map(|(name, known)| (&**name, &known.value))
    }

    /// The value of a name. None if it is new and the limits are reached.
    fn entry(&mut self, name: Box<str>, most: usize, now: Instant) -> Option<&mut V> {
        if !self.names.contains_key(&name) {
            if !self.has_room(&name, most) {
                self.forget_idle(now);
            }
            if !self.has_room(&name, most) {
                return None;
            }
            self.bytes += name.len();
        }
        let known = self.names.entry(name).or_insert_with(|| Known {
            value: V::default(),
            seen: now,
        });
        known.seen = now;
        Some(&mut known.value)
    }

    fn has_room(&self, name: &str, most: usize) -> bool {
        self.names.len() < most && self.bytes + name.len() <= self.most_bytes
    }

    /// Removes idle names, at most once per `SWEEP_INTERVAL`.
    fn forget_idle(&mut self, now: Instant) {
        if now.duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.names
            .retain(|_, known| now.duration_since(known.seen) < IDLE);
        self.bytes = self.names.keys().map(|name| name.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use tidegate_ratelimit::StatsKey;

    use super::*;

    fn hits(total_hits: u64) -> LimitDelta {
        LimitDelta {
            stats_key: StatsKey::default(),
            total_hits,
            over_limit: 0,
            near_limit: 0,
            within_limit: 0,
            over_limit_with_local_cache: 0,
            shadow_mode: 0,
            total_negative_hits: 0,
        }
    }

    fn made(names: impl IntoIterator<Item = String>) -> DynamicSeries {
        let mut made = DynamicSeries::default();
        names
            .into_iter()
            .for_each(|name| made.add(&name, Some(7), &hits(1), usize::MAX));
        made
    }

    #[test]
    fn a_core_keeps_names_of_some_megabytes_and_counts_the_rest_together() {
        let mut made = made((0..100_000).map(|number| format!("{number:0>1000}")));
        let names: usize = made.limits.keys().map(|name| name.len()).sum();
        assert!((CORE_BYTES / 2..=CORE_BYTES).contains(&names), "{names}");
        let rest = made.more_limits.unwrap().total_hits;
        assert_eq!(made.limits.len() as u64 + rest, 100_000);
        made.add(&format!("{:0>1000}", 7), None, &hits(5), usize::MAX);
        assert_eq!(
            made.limits[&*format!("{:0>1000}", 7)].counts.total_hits,
            6,
            "known names are counted all the same"
        );
        made.add(&"x".repeat(LIMIT_BYTES + 1), None, &hits(1), usize::MAX);
        assert_eq!(made.more_limits.unwrap().total_hits, rest + 1);
    }

    #[test]
    fn totals_are_bounded_in_number_and_bytes() {
        let now = Instant::now();
        let mut totals = MadeTotals::new(now);
        for core in 0..40 {
            totals.add(
                made((0..1_000).map(|number| format!("{core}-{number:0>900}"))),
                100_000,
                now,
            );
        }
        assert!(
            totals.limits.bytes <= ALL_LIMITS_BYTES && totals.limits.bytes > ALL_LIMITS_BYTES / 2
        );
        let named: u64 = totals
            .limits
            .iter()
            .map(|(_, counts)| counts.total_hits)
            .sum();
        assert_eq!(named + totals.more_limits.unwrap().total_hits, 40_000);

        let mut totals = MadeTotals::new(now);
        totals.add(made((0..10).map(|number| number.to_string())), 3, now);
        assert_eq!(
            (
                totals.limits.iter().count(),
                totals.more_limits.unwrap().total_hits
            ),
            (3, 7)
        );
        assert_eq!(
            totals.of_slot(7).total_hits,
            10,
            "whatever the bound on names, the limit is known"
        );
        totals.clear(7);
        assert_eq!(totals.of_slot(7).total_hits, 0);
    }

    #[test]
    fn names_that_nobody_uses_make_room() {
        let start = Instant::now();
        let mut totals = MadeTotals::new(start);
        totals.add(made(["old".to_owned(), "used".to_owned()]), 2, start);
        let later = start + IDLE - SWEEP;
        totals.add(made(["used".to_owned()]), 2, later);
        totals.add(made(["new".to_owned()]), 2, later);
        assert_eq!(
            totals.more_limits.unwrap().total_hits,
            1,
            "no name is old enough"
        );
        totals.add(made(["new".to_owned()]), 2, start + IDLE);
        let mut names: Vec<_> = totals
            .limits
            .iter()
            .map(|(name, counts)| (name, counts.total_hits))
            .collect();
        names.sort_unstable();
        assert_eq!(names, [("new", 1), ("used", 2)]);
    }
}
