//! Overrides: what people and workers decided about limits for a while, beside the configuration.

mod record;
mod store;

use std::fmt;

use hashbrown::HashMap;
use thiserror::Error;

pub use store::{OverrideStore, RedisOverrides};

use crate::request::{Entry, Timestamp};
use crate::store::StoreError;

/// One in a million: what factors are counted in.
const MILLION: u32 = 1_000_000;

/// A limit or a key that is paused or scaled for a while.
///
/// A target has at most one override of each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitOverride {
    /// What it is about.
    pub target: OverrideTarget,
    /// What it does.
    pub effect: Effect,
    /// When it ends; `None` when somebody has to remove it.
    pub until: Option<Timestamp>,
    /// Who decided it.
    pub by: String,
    /// When it was decided.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
}

/// What an override is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OverrideTarget {
    /// All keys of a configured limit.
    Rule {
        /// The path in the configuration: `domain.key_value.subkey`.
        stats_key: String,
    },
    /// One key. A limit need not be configured for it to be paused.
    Key {
        /// The domain.
        domain: String,
        /// The entries, with their values.
        entries: Vec<Entry>,
    },
}

/// What an override does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Somebody wants nothing to pass. Modes of the limit do not matter, except that global shadow mode lets requests pass.
    Paused(Reach),
    /// The same, because whoever is behind the limit said so.
    Throttled(Reach),
    /// The limit is another one.
    Scaled(Factor),
}

/// The effects without their parameters, in the order of [`Effect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectKind {
    /// [`Effect::Paused`].
    Paused,
    /// [`Effect::Throttled`].
    Throttled,
    /// [`Effect::Scaled`].
    Scaled,
}

/// Who is kept waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Jobs. Requests are decided as if nothing was paused.
    Jobs,
    /// Jobs and requests.
    JobsAndRequests,
}

/// By what the hits that a limit allows are multiplied: 0 to 1,000, exact to a millionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Factor(u32);

/// Why there is no such override.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OverrideError {
    /// The factor is not one.
    #[error("a limit cannot be scaled by {0}: from 0 to 1000 is possible")]
    Factor(String),
    /// The override is too long.
    #[error(
        "the override has {bytes} bytes, and at most {most} are kept: shorten its entries, its reason or who decided it"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest possible.
        most: usize,
    },
    /// There is no room.
    #[error("{most} overrides are kept already: remove one that is not needed")]
    TooMany {
        /// How many are possible.
        most: usize,
    },
    /// The store failed. Whether anything was changed is not known.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All overrides at some moment.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Sorted by target and kind.
    all: Vec<LimitOverride>,
    /// The places in `all`.
    rules: HashMap<String, Vec<usize>>,
    keys: HashMap<String, HashMap<Vec<Entry>, Vec<usize>>>,
    unreadable: usize,
    /// What the store calls this moment.
    version: Option<Box<[u8]>>,
}

impl LimitOverride {
    /// Whether it is over at the time `now`.
    #[must_use]
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Effect {
    /// The effect without its parameters.
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
    /// The factor, rounded to a millionth.
    ///
    /// # Errors
    /// It is not a number from 0 to 1,000.
    pub fn new(factor: f64) -> Result<Self, OverrideError> {
        if !(0.0..=1_000.0).contains(&factor) {
            return Err(OverrideError::Factor(factor.to_string()));
        }
        Ok(Self((factor * f64::from(MILLION)).round() as u32))
    }

    /// The factor as a number.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(MILLION)
    }

    /// So many times the factor, rounded down.
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
    /// A set of overrides. Of two of the same kind and target, the later one is in it.
    #[must_use]
    pub fn new(overrides: impl IntoIterator<Item = LimitOverride>) -> Self {
        let mut all: Vec<LimitOverride> = overrides.into_iter().collect();
        all.sort_by(|a, b| a.name().cmp(&b.name()));
        all.reverse();
        all.dedup_by(|a, b| a.name() == b.name());
        all.reverse();
        let mut overrides = Self::default();
        for (place, each) in all.iter().enumerate() {
            let places = match &each.target {
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
            places.push(place);
        }
        Self { all, ..overrides }
    }

    /// The overrides, sorted by target. Some may have ended.
    pub fn iter(&self) -> impl Iterator<Item = &LimitOverride> {
        self.all.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many records in the store are not understood, such as those of a later version. They have no effect here.
    #[must_use]
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// Those of a configured limit.
    pub(crate) fn of_rule(&self, stats_key: &str) -> impl Iterator<Item = &LimitOverride> {
        self.rules
            .get(stats_key)
            .into_iter()
            .flatten()
            .map(|place| &self.all[*place])
    }

    /// Those of a key.
    pub(crate) fn of_key(
        &self,
        domain: &str,
        entries: &[Entry],
    ) -> impl Iterator<Item = &LimitOverride> {
        let places = self.keys.get(domain).and_then(|keys| keys.get(entries));
        places.into_iter().flatten().map(|place| &self.all[*place])
    }
}

impl LimitOverride {
    /// What is there once at most.
    fn name(&self) -> (&OverrideTarget, EffectKind) {
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
        let jobs = Effect::Paused(Reach::Jobs);
        let all = Effect::Paused(Reach::JobsAndRequests);
        let half = Effect::Scaled(Factor::new(0.5).unwrap());
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
        assert_eq!(by(&mut overrides.of_rule("a")), "32");
        assert_eq!(by(&mut overrides.of_rule("b")), "4");
        assert_eq!(by(&mut overrides.of_rule("c")), "");
    }
}
