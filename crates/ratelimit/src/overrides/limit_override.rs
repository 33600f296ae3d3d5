//! An override, and all overrides at one time.

use std::fmt;

use hashbrown::HashMap;
use thiserror::Error;

use crate::model::{Entry, Timestamp};
use crate::store::StoreError;

/// Factors are counted in millionths.
const MILLION: u32 = 1_000_000;

/// A pause or a scale of a limit or a key for a time.
///
/// A target has at most one override of each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitOverride {
    /// The limit or key that the override applies to.
    pub target: OverrideTarget,
    /// The effect of the override.
    pub effect: OverrideEffect,
    /// End of the override. `None` if it holds until it is removed.
    pub until: Option<Timestamp>,
    /// Author of the decision.
    pub by: String,
    /// Time of the decision.
    pub at: Timestamp,
    /// Reason of the decision.
    pub reason: String,
}

/// The limit or key that an override applies to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OverrideTarget {
    /// All keys of a configured limit.
    Rule {
        /// The path in the configuration: `domain.key_value.subkey`.
        stats_key: String,
    },
    /// One key. A key can be paused without a configured limit.
    Key {
        /// The domain.
        domain: String,
        /// The entries, with their values.
        entries: Vec<Entry>,
    },
}

/// The effect of an override.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverrideEffect {
    /// An operator lets no hits pass. Modes of the limit do not matter, except that global shadow
    /// mode lets requests pass.
    Paused(Reach),
    /// The service behind the limit throttled a job, so no hits pass.
    Throttled(Reach),
    /// The limit is multiplied by a factor.
    Scaled(Factor),
}

/// The effects without their parameters, in the order of [`OverrideEffect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectKind {
    /// [`OverrideEffect::Paused`].
    Paused,
    /// [`OverrideEffect::Throttled`].
    Throttled,
    /// [`OverrideEffect::Scaled`].
    Scaled,
}

/// The callers that a pause makes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Jobs. Requests are decided as if the limit was not paused.
    Jobs,
    /// Jobs and requests.
    JobsAndRequests,
}

/// Factor of the hits that a limit allows: 0 to 1,000, exact to a millionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Factor(pub(super) u32);

/// Reason why an override cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OverrideError {
    /// The factor is invalid.
    #[error("a limit cannot be scaled by {0}: from 0 to 1000 is possible")]
    Factor(String),
    /// The override is too long.
    #[error(
        "the override has {bytes} bytes, and at most {most} are kept: shorten its entries, its reason or who decided it"
    )]
    TooLong {
        /// Length of the override in bytes.
        bytes: usize,
        /// Maximum length in bytes.
        most: usize,
    },
    /// The store is full.
    #[error("{most} overrides are kept already: remove one that is not needed")]
    TooMany {
        /// Maximum number of overrides.
        most: usize,
    },
    /// The store failed. It is unknown whether it changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All overrides at one time.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Sorted by target and kind.
    pub(super) all: Vec<LimitOverride>,
    /// Indices into `all`.
    rules: HashMap<String, Vec<usize>>,
    keys: HashMap<String, HashMap<Vec<Entry>, Vec<usize>>>,
    pub(super) unreadable: usize,
    /// Version of this state in the store.
    pub(super) version: Option<Box<[u8]>>,
}

impl LimitOverride {
    /// Returns whether the override has ended at the time `now`.
    #[must_use]
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl OverrideEffect {
    /// Returns the effect without its parameters.
    #[must_use]
    pub fn kind(self) -> EffectKind {
        match self {
            Self::Paused(_) => EffectKind::Paused,
            Self::Throttled(_) => EffectKind::Throttled,
            Self::Scaled(_) => EffectKind::Scaled,
        }
    }
}

impl Factor {
    /// Creates a factor, rounded to a millionth.
    ///
    /// # Errors
    /// The number is not from 0 to 1,000.
    pub fn new(factor: f64) -> Result<Self, OverrideError> {
        if !(0.0..=1_000.0).contains(&factor) {
            return Err(OverrideError::Factor(factor.to_string()));
        }
        Ok(Self((factor * f64::from(MILLION)).round() as u32))
    }

    /// Returns the factor as a number.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(MILLION)
    }

    /// Returns `requests_per_unit` times the factor, rounded down.
    pub(crate) fn scale(self, requests_per_unit: u32) -> u32 {
        let scaled = u64::from(requests_per_unit) * u64::from(self.0) / u64::from(MILLION);
        u32::try_from(scaled).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

impl Overrides {
    /// Creates a set of overrides. Of two of the same kind and target, it has the later one.
    #[must_use]
    pub fn new(overrides: impl IntoIterator<Item = LimitOverride>) -> Self {
        let mut all: Vec<LimitOverride> = overrides.into_iter().collect();
        all.sort_by(|a, b| a.identity().cmp(&b.identity()));
        all.reverse();
        all.dedup_by(|a, b| a.identity() == b.identity());
        all.reverse();
        let mut overrides = Self::default();
        for (index, limit_override) in all.iter().enumerate() {
            let indices = match &limit_override.target {
                OverrideTarget::Rule { stats_key } => {
                    overrides.rules.entry_ref(&**stats_key).or_default()
                }
                OverrideTarget::Key { domain, entries } => overrides
                    .keys
                    .entry_ref(&**domain)
                    .or_default()
                    .entry_ref(&**entries)
                    .or_default(),
            };
            indices.push(index);
        }
        Self { all, ..overrides }
    }

    /// Returns the overrides, sorted by target. Some may have ended.
    pub fn iter(&self) -> impl Iterator<Item = &LimitOverride> {
        self.all.iter()
    }

    /// Returns the number of overrides.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there are no overrides.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of records in the store that are not understood, such as those of a later
    /// version. They have no effect here.
    #[must_use]
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// Returns the overrides of a configured limit.
    pub fn for_rule(&self, stats_key: &str) -> impl Iterator<Item = &LimitOverride> {
        self.rules
            .get(stats_key)
            .into_iter()
            .flatten()
            .map(|index| &self.all[*index])
    }

    /// Returns the overrides of a key.
    pub fn for_key(&self, domain: &str, entries: &[Entry]) -> impl Iterator<Item = &LimitOverride> {
        let indices = self.keys.get(domain).and_then(|keys| keys.get(entries));
        indices.into_iter().flatten().map(|index| &self.all[*index])
    }
}

impl LimitOverride {
    /// Returns the target and kind, which are unique among the overrides.
    pub(super) fn identity(&self) -> (&OverrideTarget, EffectKind) {
        (&self.target, self.effect.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_scaled_exactly_and_rounded_down() {
        let table = [
            (100, 0.29, 29),
            (10, 0.7, 7),
            (3, 0.5, 1),
            (1, 0.999_999, 0),
            (7, 0.0, 0),
            (7, 1.0, 7),
            (10, 1.5, 15),
            (u32::MAX, 1.0, u32::MAX),
            (u32::MAX, 1_000.0, u32::MAX),
        ];
        for (limit, factor, scaled) in table {
            assert_eq!(
                Factor::new(factor).unwrap().scale(limit),
                scaled,
                "{limit} by {factor}"
            );
        }
        for factor in [-0.1, 1_000.1, f64::NAN, f64::INFINITY] {
            assert!(Factor::new(factor).is_err(), "{factor}");
        }
        assert_eq!(Factor::new(0.29).unwrap().to_string(), "0.29");
    }

    #[test]
    fn a_target_has_one_override_of_a_kind() {
        let of = |stats_key: &str, effect, by: &str| LimitOverride {
            target: OverrideTarget::Rule {
                stats_key: stats_key.to_owned(),
            },
            effect,
            until: None,
            by: by.to_owned(),
            at: Timestamp(0),
            reason: String::new(),
        };
        let jobs = OverrideEffect::Paused(Reach::Jobs);
        let all = OverrideEffect::Paused(Reach::JobsAndRequests);
        let half = OverrideEffect::Scaled(Factor::new(0.5).unwrap());
        let overrides = Overrides::new([
            of("b", jobs, "1"),
            of("a", half, "2"),
            of("a", jobs, "3"),
            of("b", all, "4"),
        ]);
        let by = |overrides: &mut dyn Iterator<Item = &LimitOverride>| {
            overrides.map(|each| each.by.clone()).collect::<String>()
        };
        assert_eq!(by(&mut overrides.iter()), "324");
        assert_eq!(by(&mut overrides.for_rule("a")), "32");
        assert_eq!(by(&mut overrides.for_rule("b")), "4");
        assert_eq!(by(&mut overrides.for_rule("c")), "");
    }
}
