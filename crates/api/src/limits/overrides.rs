//! Overrides that pause, throttle or scale limits and keys, on all servers that share the limiter's
//! Redis.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tidegate_ratelimit::{
    EffectKind, Entry as RateEntry, Factor, LimitOverride, OverrideEffect, OverrideError,
    OverrideTarget, Reach, Timestamp,
};
#[cfg(test)]
use utoipa::ToSchema;

use super::{pairs, without_store};
use crate::http::body::{self, NoBody, TimeSpan};
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::rate_limits::deadline;
use crate::views::workflow_limits::EntryPair;

/// Name of the author of an override if no tokens are needed.
const ANONYMOUS: &str = "anonymous";

/// A limit or a key to pause or to scale.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = OverrideDefinition))]
pub(crate) struct OverrideBody {
    /// For one key: the domain of the configuration of rate limits.
    domain: Option<String>,
    /// For one key: pairs of a key and a value, as requests and jobs name them.
    #[cfg_attr(test, schema(value_type = Option<Vec<Vec<String>>>, min_items = 1))]
    entries: Option<Vec<EntryPair>>,
    /// For all keys of a limit: its path in the configuration, such as `vendor.tenant`, as it is in the names of metrics.
    rule: Option<String>,
    /// True to let nothing pass.
    pause: Option<bool>,
    /// By what the hits that the limit allows are multiplied.
    #[cfg_attr(test, schema(minimum = 0, maximum = 1000))]
    scale: Option<f64>,
    /// How long it holds; until it is removed if left out.
    r#for: Option<TimeSpan>,
    /// With `pause`: whether requests are refused, too; if not, only jobs wait.
    gateway: Option<bool>,
    /// Why, for those who see it.
    reason: Option<String>,
}

/// All overrides, sorted by what they are about.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct OverrideList<'a> {
    items: Vec<OverrideShown<'a>>,
    /// How many more there are that a later version wrote. They have no effect at this server.
    unreadable: usize,
}

/// A limit or a key that is paused, throttled or scaled.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitOverride))]
pub(crate) struct OverrideShown<'a> {
    /// The limit, when it is about all of its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    /// The domain, when it is about one key.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<&'a str>,
    /// The pairs of a key and a value, when it is about one key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<Vec<String>>>))]
    entries: Option<Vec<(&'a str, &'a str)>>,
    /// Effect of the override. `throttled`: the service behind the limit asked for the pause.
    effect: &'static str,
    /// By what the hits are multiplied that a scaled limit allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<f64>,
    /// Whether it is also for requests; if not, only for jobs.
    gateway: bool,
    /// When it ends; null when it holds until it is removed.
    #[cfg_attr(test, schema(required))]
    until: Option<Rfc3339>,
    /// When it was decided.
    at: Rfc3339,
    /// Name of the token of its author; `anonymous` where no token is needed.
    by: &'a str,
    /// Why.
    reason: &'a str,
}

impl<'a> OverrideShown<'a> {
    pub(super) fn from_override(stored: &'a LimitOverride) -> Self {
        let (rule, domain, entries) = match &stored.target {
            OverrideTarget::Rule { stats_key } => (Some(&**stats_key), None, None),
            OverrideTarget::Key { domain, entries } => {
                (None, Some(&**domain), Some(pairs(entries)))
            }
        };
        let (scale, gateway) = match stored.effect {
            OverrideEffect::Paused(reach) | OverrideEffect::Throttled(reach) => {
                (None, reach == Reach::JobsAndRequests)
            }
            OverrideEffect::Scaled(factor) => (Some(factor.get()), true),
        };
        Self {
            rule,
            domain,
            entries,
            effect: word(stored.effect.kind()),
            scale,
            gateway,
            until: stored.until.map(Rfc3339::from),
            at: stored.at.into(),
            by: &stored.by,
            reason: &stored.reason,
        }
    }
}

const KINDS: [EffectKind; 3] = [
    EffectKind::Paused,
    EffectKind::Throttled,
    EffectKind::Scaled,
];

/// Words of the effects.
#[cfg(test)]
pub(crate) const EFFECTS: [&str; 3] = [word(KINDS[0]), word(KINDS[1]), word(KINDS[2])];

const fn word(kind: EffectKind) -> &'static str {
    match kind {
        EffectKind::Paused => "paused",
        EffectKind::Throttled => "throttled",
        EffectKind::Scaled => "scaled",
    }
}

/// Returns the target of an override: all keys of a limit, or one key.
fn target(
    rule: Option<String>,
    domain: Option<String>,
    entries: Option<Vec<EntryPair>>,
) -> Result<OverrideTarget, Problem> {
    match (rule, domain, entries) {
        (Some(stats_key), None, None) => Ok(OverrideTarget::Rule { stats_key }),
        (Some(_), _, _) => Err(Problem::field(
            "rule",
            "'rule' is for all keys of a limit, 'domain' and 'entries' are for one key",
        )),
        (None, Some(domain), Some(entries)) if !entries.is_empty() => {
            let entry = |(key, value)| RateEntry { key, value };
            Ok(OverrideTarget::Key {
                domain,
                entries: EntryPair::pairs(entries).into_iter().map(entry).collect(),
            })
        }
        (None, Some(_), _) => Err(Problem::field(
            "entries",
            "expected at least one pair of a key and a value",
        )),
        (None, None, _) => Err(Problem::field(
            "",
            "say what it is about: a 'rule', or a key with its 'domain' and 'entries'",
        )),
    }
}

impl OverrideBody {
    fn resolve(self, by: &str, now: Timestamp) -> Result<LimitOverride, Problem> {
        let target = target(self.rule, self.domain, self.entries)?;
        let effect = effect(self.pause, self.scale, self.gateway)?;
        let until = match self.r#for {
            Some(TimeSpan(span)) if span.is_zero() => {
                return Err(Problem::field(
                    "for",
                    "expected a time span that is longer than nothing",
                ));
            }
            Some(TimeSpan(span)) => Some(Timestamp(
                now.0
                    .saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
            )),
            None => None,
        };
        Ok(LimitOverride {
            target,
            effect,
            until,
            by: by.to_owned(),
            at: now,
            reason: self.reason.unwrap_or_default(),
        })
    }
}

fn effect(
    pause: Option<bool>,
    scale: Option<f64>,
    gateway: Option<bool>,
) -> Result<OverrideEffect, Problem> {
    let reach = if gateway == Some(true) {
        Reach::JobsAndRequests
    } else {
        Reach::Jobs
    };
    match (pause, scale) {
        (Some(true), None) => Ok(OverrideEffect::Paused(reach)),
        (Some(true), Some(_)) => Err(Problem::field(
            "scale",
            "an override pauses or scales: send two",
        )),
        (_, Some(_)) if gateway == Some(false) => Err(Problem::field(
            "gateway",
            "a limit is scaled for jobs and requests alike",
        )),
        (_, Some(factor)) => Factor::new(factor)
            .map(OverrideEffect::Scaled)
            .map_err(|error| Problem::field("scale", error.to_string())),
        (Some(false), None) => Err(Problem::field(
            "pause",
            "what is paused is resumed with DELETE",
        )),
        (None, None) => Err(Problem::field(
            "",
            "say what to do: 'pause' with true, or 'scale' with a factor",
        )),
    }
}

pub(crate) async fn list(request: &RequestContext<'_>) -> HandlerResult {
    let limits = &request.api.hooks.limits;
    let stored = limits
        .refresh()
        .await
        .map_err(|error| without_store(&error))?;
    let now = limits.now();
    let items = stored
        .iter()
        .filter(|each| !each.has_ended(now))
        .map(OverrideShown::from_override)
        .collect();
    Ok(json::ok(&OverrideList {
        items,
        unreadable: stored.unreadable(),
    }))
}

pub(crate) async fn set(request: &RequestContext<'_>) -> HandlerResult {
    let limits = &request.api.hooks.limits;
    let now = limits.now();
    let new = super::read::<OverrideBody>(request.body)?
        .resolve(request.token.unwrap_or(ANONYMOUS), now)?;
    if let OverrideTarget::Rule { stats_key } = &new.target
        && !limits
            .limiter
            .configuration()
            .is_some_and(|known| known.stats_keys().any(|key| key == stats_key))
    {
        return Err(Problem::field(
            "rule",
            format!("the configuration of this server has no limit '{stats_key}'"),
        ));
    }
    limits
        .overrides
        .put(&new, now, deadline())
        .await
        .map_err(refusal)?;
    // The override is stored. If this refresh fails, the next one follows within a second.
    let _ = limits.refresh().await;
    Ok(json::ok(&OverrideShown::from_override(&new)))
}

pub(crate) async fn remove(request: &RequestContext<'_>) -> HandlerResult {
    body::read_optional::<NoBody>(request.body)?;
    let (target, kinds) = parse_removal(Query::new(request.query)?)?;
    let limits = &request.api.hooks.limits;
    let mut removed = false;
    for kind in kinds {
        let was_there = limits.overrides.remove(&target, kind, deadline()).await;
        removed |= was_there.map_err(|error| without_store(&error))?;
    }
    if !removed {
        return Err(Problem::new(
            Code::OverrideNotFound,
            "nothing overrides this limit or key",
        ));
    }
    // The override is removed. If this refresh fails, the next one follows within a second.
    let _ = limits.refresh().await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Parses the query of a removal. Returns the target, and the kinds of overrides to remove.
fn parse_removal(mut query: Query) -> Result<(OverrideTarget, Vec<EffectKind>), Problem> {
    let rule = query.remove("rule");
    let domain = query.remove("domain");
    let wrong = |_| {
        Problem::field(
            "entries",
            r#"expected pairs of a key and a value, such as [["tenant","acme"]]"#,
        )
    };
    let entries = query
        .remove("entries")
        .map(|text| serde_json::from_str(&text).map_err(wrong))
        .transpose()?;
    let effect = query.remove("effect");
    query.finish()?;
    let target = target(rule, domain, entries)?;
    let mut kinds = KINDS.to_vec();
    kinds.retain(|kind| effect.as_ref().is_none_or(|effect| effect == word(*kind)));
    if kinds.is_empty() {
        return Err(Problem::field(
            "effect",
            "expected one of paused, throttled, scaled",
        ));
    }
    Ok((target, kinds))
}

/// Returns the problem of an override that is not stored.
fn refusal(error: OverrideError) -> Problem {
    match &error {
        OverrideError::Factor(_) => Problem::field("scale", error.to_string()),
        OverrideError::TooLong { .. } => Problem::field("", error.to_string()),
        OverrideError::TooMany { .. } => Problem::new(Code::TooManyOverrides, error.to_string()),
        OverrideError::Store(error) => without_store(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of the mistake, if there is one.
    fn read(text: &str) -> Result<LimitOverride, String> {
        super::super::read::<OverrideBody>(text.as_bytes())
            .and_then(|body| body.resolve("ada", Timestamp(5)))
            .map_err(|problem| problem.path().unwrap_or_default().to_owned())
    }

    #[test]
    fn an_override_has_its_target_and_effect() {
        let key = r#""domain": "vendor", "entries": [["tenant", "acme"]]"#;
        let paused = read(&format!(
            r#"{{{key}, "pause": true, "for": "10m", "reason": "r"}}"#
        ))
        .unwrap();
        assert_eq!(paused.effect, OverrideEffect::Paused(Reach::Jobs));
        assert_eq!(
            (paused.until, paused.at),
            (Some(Timestamp(600_000_005)), Timestamp(5))
        );
        assert_eq!((&*paused.by, &*paused.reason), ("ada", "r"));
        let rule = read(r#"{"rule": "vendor.tenant", "pause": true, "gateway": true}"#).unwrap();
        assert_eq!(
            rule.target,
            OverrideTarget::Rule {
                stats_key: "vendor.tenant".into()
            }
        );
        assert_eq!(
            (rule.effect, rule.until),
            (OverrideEffect::Paused(Reach::JobsAndRequests), None)
        );
        let scaled = read(&format!(r#"{{{key}, "scale": 0.5}}"#)).unwrap();
        assert_eq!(
            scaled.effect,
            OverrideEffect::Scaled(Factor::new(0.5).unwrap())
        );
    }

    #[test]
    fn mistakes_in_an_override_are_named_by_path() {
        let key = r#""domain": "vendor", "entries": [["tenant", "acme"]]"#;
        for (text, path) in [
            (r#"{"pause": true}"#.to_owned(), ""),
            (format!("{{{key}}}"), ""),
            (format!(r#"{{{key}, "pause": false}}"#), "pause"),
            (format!(r#"{{{key}, "pause": true, "scale": 1}}"#), "scale"),
            (format!(r#"{{{key}, "scale": 1000.1}}"#), "scale"),
            (format!(r#"{{{key}, "scale": -1}}"#), "scale"),
            (
                format!(r#"{{{key}, "scale": 1, "gateway": false}}"#),
                "gateway",
            ),
            (format!(r#"{{{key}, "pause": true, "for": "0s"}}"#), "for"),
            (format!(r#"{{{key}, "pause": true, "for": 5}}"#), "for"),
            (format!(r#"{{{key}, "rule": "a", "pause": true}}"#), "rule"),
            (
                r#"{"domain": "vendor", "entries": [], "pause": true}"#.to_owned(),
                "entries",
            ),
            (
                r#"{"domain": "vendor", "pause": true}"#.to_owned(),
                "entries",
            ),
            (
                format!(r#"{{{key}, "pause": true, "reasons": ""}}"#),
                "reasons",
            ),
        ] {
            assert_eq!(read(&text).unwrap_err(), path, "{text}");
        }
    }
}
