//! Short ways to take units for jobs, and to say what was taken.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tidegate_ratelimit::{
    AcquireFacts, AcquireRequest, Acquired, Entry, Exhausted, ExhaustedReason, Limiter, Remaining,
    Timestamp, Units,
};

use crate::fixture::{entries, stats_key};

/// Jobs that have the same limits.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    domain: &'static str,
    limits: Vec<(Vec<Entry>, NonZeroU32)>,
    pub(crate) times: u32,
}

impl Job {
    /// Jobs with limits that are written as entries and hits.
    pub(crate) fn of(limits: &[(&str, u32)], times: u32) -> Self {
        let limit = |(text, hits): &(&str, u32)| {
            (
                entries(text),
                NonZeroU32::new(*hits).expect("a job costs something"),
            )
        };
        Self {
            domain: "test-domain",
            limits: limits.iter().map(limit).collect(),
            times,
        }
    }

    pub(crate) fn in_domain(self, domain: &'static str) -> Self {
        Self { domain, ..self }
    }

    pub(crate) fn units(&self) -> Vec<Units<'_>> {
        self.limits
            .iter()
            .map(|(entries, hits)| Units {
                domain: self.domain,
                entries,
                hits: *hits,
            })
            .collect()
    }
}

/// What came of one take.
#[derive(Debug)]
pub(crate) struct Took {
    taken: Vec<Acquired>,
    pub(crate) facts: AcquireFacts,
    /// One per tally.
    pub(crate) stats_keys: Vec<String>,
}

/// Takes at a second.
pub(crate) async fn take_at(limiter: &Limiter, second: u64, jobs: &[Job]) -> Took {
    let units: Vec<Vec<Units<'_>>> = jobs.iter().map(Job::units).collect();
    let wanted = jobs.iter().zip(&units).map(|(job, limits)| AcquireRequest {
        limits,
        times: job.times,
    });
    let wanted: Vec<AcquireRequest<'_>> = wanted.collect();
    let mut facts = AcquireFacts::default();
    let taken = limiter
        .acquire(
            &wanted,
            Timestamp(second * 1_000_000),
            deadline(),
            &mut facts,
        )
        .await
        .expect("an answer");
    for (taken, job) in taken.iter().zip(jobs) {
        assert!(
            taken.exhausted.is_some() || taken.permits.times() == job.times,
            "{taken:?} of {job:?}"
        );
        assert_eq!(
            taken.exhausted.is_some(),
            taken.remaining == Remaining::Jobs(0),
            "{taken:?} of {job:?}"
        );
    }
    let stats_keys = facts
        .counted
        .tallies
        .iter()
        .map(|tally| stats_key(limiter, tally))
        .collect();
    Took {
        taken,
        facts,
        stats_keys,
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

impl Took {
    /// How many jobs of all have their units.
    pub(crate) fn times(&self) -> u32 {
        self.each().sum()
    }

    /// How many jobs of each kind have their units.
    pub(crate) fn each(&self) -> impl Iterator<Item = u32> {
        self.taken.iter().map(|taken| taken.permits.times())
    }

    /// For jobs of each kind: how many may run, and how many more, or which limit says no.
    pub(crate) fn outline(&self) -> Vec<String> {
        let outline = |taken: &Acquired| {
            let rest = match (&taken.exhausted, taken.remaining) {
                (Some(closed), _) => describe(closed),
                (None, Remaining::Unlimited) => "unlimited".to_owned(),
                (None, Remaining::Jobs(left)) => format!("{left} left"),
            };
            format!("{}, {rest}", taken.permits.times())
        };
        self.taken.iter().map(outline).collect()
    }

    /// Takes so many jobs of each kind out.
    pub(crate) fn split_off(&mut self, times: u32) -> Self {
        let part = |taken: &mut Acquired| Acquired {
            permits: taken.permits.split_off(times),
            remaining: taken.remaining,
            exhausted: taken.exhausted.clone(),
        };
        let taken = self.taken.iter_mut().map(part).collect();
        Self {
            taken,
            facts: AcquireFacts::default(),
            stats_keys: Vec::new(),
        }
    }

    /// Gives all units back at a second.
    pub(crate) async fn give_back(self, limiter: &Limiter, second: u64) {
        let permits = self.taken.into_iter().map(|taken| taken.permits).collect();
        limiter
            .refund(permits, Timestamp(second * 1_000_000), deadline())
            .await
            .expect("the store takes it");
    }
}

fn describe(closed: &Exhausted) -> String {
    let limit = closed.limit;
    match &closed.reason {
        ExhaustedReason::UsedUp { after } => format!("limit {limit} for {after:?}"),
        ExhaustedReason::Paused { after: None } => format!("limit {limit} paused"),
        ExhaustedReason::Paused { after: Some(after) } => {
            format!("limit {limit} paused for {after:?}")
        }
        ExhaustedReason::Never => format!("limit {limit} for ever"),
        ExhaustedReason::Failed(_) => format!("limit {limit} failed"),
    }
}
