//! Refusals of a range at this server, by key.

use serde::Serialize;
use tidegate_ratelimit::{Caller, Configuration};
#[cfg(test)]
use utoipa::ToSchema;

use super::top::caller;
use super::{MAX_LISTS_BYTES, list_within, pairs, truncate};
use crate::http::json::{self, Verbatim};
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::config_status::Loads;
use crate::state::history::HistoryRange;
use crate::state::history::refused_keys::{RefusedCounts, RefusedInRange};

/// Most keys of an answer.
const MAX_ITEMS: usize = 64;

/// Keys that were refused at this server, those with the most refusals first.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = RefusedKeys))]
pub(crate) struct RefusedKeysShown<'a> {
    /// The time between two numbers of `points`, in milliseconds.
    step_ms: u64,
    /// The end of the last step, which may be in the future: that step is not over.
    until: Rfc3339,
    #[cfg_attr(test, schema(value_type = Vec<RefusedKeyShown>, max_items = 64))]
    items: Verbatim<'a>,
    /// How many keys were refused. An answer has at most 64 of them.
    keys: usize,
    /// Whether all keys are known that were refused since the server started. It keeps 512.
    is_complete: bool,
}

/// A key that was refused to requests, or for which jobs had to wait.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = RefusedKey))]
struct RefusedKeyShown<'a> {
    domain: &'a str,
    /// Pairs of a key and a value. What is long is cut.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(&'a str, &'a str)>,
    /// The path of its limit in the configuration. Left out when the configuration has none, or the key was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    /// The path of the file, or the resource, that the limit is written in.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    /// Its line there.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    caller: &'static str,
    /// Hits of requests that were refused, or how often jobs had to wait.
    count: u64,
    /// The share of the hits of the key that were refused, from 0 to 1, since its first refusal. Null for jobs.
    #[cfg_attr(test, schema(required))]
    share: Option<f64>,
    /// When it was refused first in the range, right within a minute, or within an hour in a range of 24 hours.
    first_at: Rfc3339,
    last_at: Rfc3339,
    /// Whether there were too many decisions or keys to count all.
    is_estimate: bool,
    /// Refusals in each step, the oldest first; at most 24.
    #[cfg_attr(test, schema(max_items = 24))]
    points: &'a [u64],
}

impl<'a> RefusedKeyShown<'a> {
    fn new(counts: &'a RefusedCounts) -> Self {
        let share = counts.refused as f64 / counts.hits.max(1) as f64;
        Self {
            domain: &counts.key.domain,
            entries: pairs(&counts.key.entries),
            rule: None,
            file: None,
            line: None,
            caller: caller(counts.caller),
            count: counts.refused,
            share: (counts.caller == Caller::Request)
                .then(|| (share.min(1.0) * 1_000.0).round() / 1_000.0),
            first_at: counts.first_at.into(),
            last_at: counts.last_at.into(),
            is_estimate: counts.is_estimate,
            points: &counts.points,
        }
    }
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let range = HistoryRange::from_query(&mut query)?;
    let rule = query.remove("rule");
    query.finish()?;
    let hooks = &request.api.hooks;
    let limits = &hooks.limits;
    let now = limits.now();
    hooks.history.record_refusals(&limits.limiter, now);
    let active = limits.limiter.configuration();
    let loads = (hooks.loads)();
    let refused = hooks.history.refused(range, now);
    let items = shown(&refused, active.as_deref(), &loads, rule.as_deref());
    Ok(json::ok(&RefusedKeysShown {
        step_ms: range.refusal_steps().minutes * 60_000,
        until: refused.until.into(),
        keys: items.len(),
        items: list_within(MAX_LISTS_BYTES, items.iter().take(MAX_ITEMS)),
        is_complete: refused.is_complete,
    }))
}

/// Returns the keys with their limits, those with the most refusals first, or only those of a rule.
fn shown<'a>(
    refused: &'a RefusedInRange,
    configuration: Option<&'a Configuration>,
    loads: &'a Loads,
    rule: Option<&str>,
) -> Vec<RefusedKeyShown<'a>> {
    let mut keys: Vec<&RefusedCounts> = refused.keys.iter().collect();
    keys.sort_by(|a, b| {
        let name = |counts: &'a RefusedCounts| (&counts.key.domain, &counts.key.entries);
        b.refused
            .cmp(&a.refused)
            .then_with(|| name(a).cmp(&name(b)))
    });
    let mut lookup = configuration.map(Configuration::lookup);
    let mut items = Vec::new();
    for counts in keys {
        let lookup = lookup.as_mut().filter(|_| !counts.key.is_cut);
        let found = lookup.and_then(|lookup| lookup.find(&counts.key.domain, &counts.key.entries));
        let of_rule = found.map(|found| &*found.limit.stats_key);
        if rule.is_some() && rule != of_rule {
            continue;
        }
        items.push(RefusedKeyShown {
            rule: of_rule.map(truncate),
            file: found.map(|found| truncate(loads.path_of(found.file))),
            line: found.map(|found| found.line).filter(|line| *line > 0),
            ..RefusedKeyShown::new(counts)
        });
    }
    items
}

#[cfg(test)]
mod tests {
    use tidegate_ratelimit::{Entry, SameDomain, Source, Timestamp};

    use super::*;
    use crate::state::history::refused_keys::KeyName;

    fn counts(value: &str, refused: u64, caller: Caller) -> RefusedCounts {
        RefusedCounts {
            key: KeyName {
                domain: "shop".to_owned(),
                entries: vec![Entry {
                    key: "user".to_owned(),
                    value: value.to_owned(),
                }],
                is_cut: false,
            },
            caller,
            hits: 4 * refused,
            refused,
            first_at: Timestamp(1),
            last_at: Timestamp(2),
            is_estimate: false,
            points: vec![u64::MAX; 24],
        }
    }

    fn in_range(keys: Vec<RefusedCounts>) -> RefusedInRange {
        RefusedInRange {
            until: Timestamp(3),
            keys,
            is_complete: true,
        }
    }

    #[test]
    fn keys_have_their_limits_and_those_with_most_refusals_come_first() {
        let source = Source {
            name: "shop".to_owned(),
            text: "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: day, requests_per_unit: 1}\n".into(),
        };
        let configuration = Configuration::load(&[source], SameDomain::Refuse).unwrap();
        let refused = in_range(vec![
            counts("b", 1, Caller::Job),
            counts("c", 7, Caller::Request),
            counts("a", 1, Caller::Request),
        ]);
        let loads = Loads::default();
        let check = |rule, expected: &[(&str, Option<f64>)]| {
            let items = shown(&refused, Some(&configuration), &loads, rule);
            let values: Vec<_> = items
                .iter()
                .map(|item| (item.entries[0].1, item.share))
                .collect();
            assert_eq!(values, expected, "{rule:?}");
            let is_known = |item: &RefusedKeyShown<'_>| {
                (item.rule, item.file, item.line) == (Some("shop.user"), Some("shop"), Some(3))
            };
            assert!(items.iter().all(is_known));
        };
        let all = [("c", Some(0.25)), ("a", Some(0.25)), ("b", None)];
        check(None, &all);
        check(Some("shop.user"), &all);
        check(Some("shop"), &[]);
        let without = shown(&refused, None, &loads, None);
        assert!(without.len() == 3 && without[0].rule.is_none());
    }
}
