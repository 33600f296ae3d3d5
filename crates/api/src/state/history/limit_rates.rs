//! Rates of each limit in the last minute, and their series, from its counts every ten seconds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tidegate_ratelimit::{Configuration, Limit};

use super::super::config_status::LimitUse;
use super::limit_series::{LatestPoints, LimitSeries, SeriesInRange};
use crate::http::lock;

/// Time between two readings.
pub const LIMIT_RATES_STEP: Duration = Duration::from_secs(10);
/// Number of readings that are kept: the oldest is about a minute old.
const MAX_READINGS: usize = 6;
/// Shortest time that gives a rate.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// Limits of a larger configuration that have rates. All readings take less than 1 MiB.
const MAX_LIMITS: usize = 4_096;

/// Rates of limits.
#[derive(Debug, Default)]
pub(super) struct LimitRates(Mutex<Readings>);

/// Readings of the limits of one configuration.
#[derive(Debug, Default)]
struct Readings {
    configuration: Weak<Configuration>,
    /// Index in a reading by the slot of a limit.
    indices: HashMap<u32, usize>,
    slots: Vec<u32>,
    series: LimitSeries,
    oldest_first: VecDeque<Reading>,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    counts: Vec<LimitCount>,
}

#[derive(Debug, Clone, Copy)]
struct LimitCount {
    hits: u64,
    refused: u64,
}

/// Rates of one limit over about a minute, or less if it is not known for as long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LimitRate {
    pub(crate) window: Duration,
    /// Number of hits in the window.
    pub(crate) hits: u64,
    /// Number of hits that were refused.
    pub(crate) refused: u64,
}

impl LimitRates {
    /// Reads the counts of all limits at the time `at`. It is called every [`LIMIT_RATES_STEP`].
    pub(super) fn record(
        &self,
        configuration: &Arc<Configuration>,
        uses: impl Fn(&[u32]) -> Vec<LimitUse>,
        at: Instant,
    ) {
        let mut readings = lock(&self.0);
        if readings.configuration.as_ptr() != Arc::as_ptr(configuration) {
            // Its limits may have the slots of others.
            readings.change_configuration(configuration);
        }
        let uses = uses(&readings.slots);
        readings.series.record(&uses, at);
        let counts = uses.into_iter().map(LimitCount::from).collect();
        if readings.oldest_first.len() == MAX_READINGS {
            readings.oldest_first.pop_front();
        }
        readings.oldest_first.push_back(Reading { at, counts });
    }

    /// Returns the rates of limits of a configuration that is held, from their counts at the time
    /// `at`. `None` where they are not known: in the first seconds, and in a configuration of more
    /// than 4,096 limits.
    pub(super) fn rates(
        &self,
        configuration: &Configuration,
        slots: &[u32],
        uses: &[LimitUse],
        at: Instant,
    ) -> Vec<Option<LimitRate>> {
        let readings = lock(&self.0);
        let is_known = std::ptr::eq(readings.configuration.as_ptr(), configuration);
        let rate = |(slot, now): (&u32, &LimitUse)| readings.rate(*slot, (*now).into(), at);
        slots
            .iter()
            .zip(uses)
            .map(|limit| rate(limit).filter(|_| is_known))
            .collect()
    }

    /// Returns the latest points of limits.
    pub(super) fn series(&self, wanted: LatestPoints, rules: &[String]) -> SeriesInRange {
        lock(&self.0).series.latest(wanted, rules)
    }
}

impl From<LimitUse> for LimitCount {
    fn from(limit_use: LimitUse) -> Self {
        Self {
            hits: limit_use.hits,
            refused: limit_use.over_limit.saturating_sub(limit_use.shadow_mode),
        }
    }
}

impl Readings {
    fn change_configuration(&mut self, configuration: &Arc<Configuration>) {
        let limits: Vec<&Limit> = configuration.limits_in_order().take(MAX_LIMITS).collect();
        self.configuration = Arc::downgrade(configuration);
        self.slots = limits.iter().map(|limit| limit.slot).collect();
        self.indices = self.slots.iter().copied().zip(0..).collect();
        self.oldest_first.clear();
        self.series
            .change_rules(limits.iter().map(|limit| &*limit.stats_key));
    }

    fn rate(&self, slot: u32, now: LimitCount, at: Instant) -> Option<LimitRate> {
        let index = *self.indices.get(&slot)?;
        let first = self.oldest_first.front()?;
        let then = first.counts.get(index)?;
        let window = at.saturating_duration_since(first.at);
        (window >= MIN_WINDOW).then(|| LimitRate {
            window,
            hits: now.hits.saturating_sub(then.hits),
            refused: now.refused.saturating_sub(then.refused),
        })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_ratelimit::{SameDomain, Source};

    use super::*;

    fn configuration(limits: usize) -> Arc<Configuration> {
        let limit =
            |at| format!("  - {{key: k{at}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n");
        let text: String = (0..limits).map(limit).collect();
        let source = Source {
            name: "d".to_owned(),
            text: format!("domain: d\ndescriptors:\n{text}").into(),
        };
        Arc::new(Configuration::load(&[source], SameDomain::Refuse).unwrap())
    }

    /// Counts of so many limits after a number of seconds: ten hits in each, and one is refused.
    fn uses(seconds: u64, limits: usize) -> Vec<LimitUse> {
        let limit_use = LimitUse {
            hits: 10 * seconds,
            over_limit: 2 * seconds,
            shadow_mode: seconds,
            ..LimitUse::default()
        };
        vec![limit_use; limits]
    }

    #[test]
    fn rates_are_of_the_last_minute() {
        let rates = LimitRates::default();
        let [first, second] = [configuration(1), configuration(MAX_LIMITS + 1)];
        let began = Instant::now();
        let record = |configuration: &Arc<Configuration>, second| {
            let at = began + Duration::from_secs(second);
            rates.record(configuration, |slots| uses(second, slots.len()), at);
        };
        let shown = |configuration: &Configuration, slots: &[u32], second| {
            let at = began + Duration::from_secs(second);
            rates.rates(configuration, slots, &uses(second, slots.len()), at)
        };
        assert_eq!(shown(&first, &[0], 0), [None], "there is no reading");
        for second in [0, 10, 20, 30, 40, 50, 60, 70] {
            record(&first, second);
            let window = second.min(50) + 3;
            let rate = LimitRate {
                window: Duration::from_secs(window),
                hits: 10 * window,
                refused: window,
            };
            assert_eq!(shown(&first, &[0, 9], second + 3), [Some(rate), None]);
        }
        assert_eq!(shown(&second, &[0], 90), [None], "another configuration");
        record(&second, 90);
        assert_eq!(shown(&second, &[0], 90), [None], "no time has passed");
        let slots: Vec<u32> = second.limits_in_order().map(|limit| limit.slot).collect();
        let known = shown(&second, &slots, 92);
        assert!(known[0].is_some_and(|rate| rate.hits == 20));
        assert!(known[MAX_LIMITS - 1].is_some() && known[MAX_LIMITS].is_none());
    }
}
