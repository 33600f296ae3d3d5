//! Keys with the most hits, and the latest refusals, of requests and of jobs.

use serde::Serialize;
use tidegate_ratelimit::{Caller, Configuration, Refusal, TopKey};
#[cfg(test)]
use utoipa::ToSchema;

use super::{MAX_LISTS_BYTES, list_within, pairs, truncate};
use crate::http::json::{self, Verbatim};
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};

/// Keys with the most hits at this server, and its latest refusals.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = TopKeys))]
pub(crate) struct TopKeysShown<'a> {
    /// When the counting of `hits` began: one to two minutes ago, or when the server started.
    since: Rfc3339,
    /// How long ago that was.
    window_ms: u64,
    /// Keys with a limit, at most 128, those with the most hits first. A key with less than about a hundredth of all hits may be missing.
    #[cfg_attr(test, schema(value_type = Vec<TopKeyShown>, max_items = 128))]
    keys: Verbatim<'a>,
    /// At most 128, the latest first. Of many in one second, some are missing.
    #[cfg_attr(test, schema(value_type = Vec<RefusalShown>, max_items = 128))]
    refusals: Verbatim<'a>,
}

/// A key, and how many hits were asked of it. Hits of jobs are those that were granted.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = TopKey))]
struct TopKeyShown<'a> {
    domain: &'a str,
    /// Pairs of a key and a value. What is long is cut.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(&'a str, &'a str)>,
    /// The path of its limit in the configuration. Left out when the configuration has none, or the key was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    hits: u64,
    /// Hits a second since the counting began.
    hits_per_second: f64,
    /// Whether the number of hits is an estimate, because too many decisions or keys came to count
    /// all.
    is_estimate: bool,
}

/// A request that was refused, or jobs that had to wait.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitRefusal))]
struct RefusalShown<'a> {
    at: Rfc3339,
    /// Caller that was refused.
    caller: &'static str,
    domain: &'a str,
    /// Pairs of a key and a value. What is long is cut.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(&'a str, &'a str)>,
}

/// Words of the callers.
#[cfg(test)]
pub(crate) const CALLERS: [&str; 2] = [caller(Caller::Request), caller(Caller::Job)];

pub(super) const fn caller(caller: Caller) -> &'static str {
    match caller {
        Caller::Request => "request",
        Caller::Job => "job",
    }
}

impl<'a> TopKeyShown<'a> {
    fn new(key: &'a TopKey, rule: Option<&'a str>, hits_per_second: f64) -> Self {
        Self {
            domain: &key.domain,
            entries: pairs(&key.entries),
            rule,
            hits: key.hits,
            hits_per_second,
            is_estimate: key.is_estimate,
        }
    }
}

impl<'a> RefusalShown<'a> {
    fn new(refusal: &'a Refusal) -> Self {
        Self {
            at: refusal.at.into(),
            caller: caller(refusal.caller),
            domain: &refusal.domain,
            entries: pairs(&refusal.entries),
        }
    }
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let limits = &request.api.hooks.limits;
    let now = limits.now();
    let sketch = limits.limiter.sketch(now);
    let configuration = limits.limiter.configuration();
    let mut lookup = configuration.as_deref().map(Configuration::lookup);
    // A server that has just started has counted for a shorter time.
    let since = sketch.since.max((request.api.hooks.loads)().counting_since);
    let window_ms = now.0.saturating_sub(since.0) / 1_000;
    let rate = |hits: u64| (hits as f64 * 1e6 / window_ms.max(1) as f64).round() / 1e3;
    let keys = sketch.top.iter().map(|key| {
        let lookup = lookup.as_mut().filter(|_| !key.is_cut);
        let found = lookup.and_then(|lookup| lookup.find(&key.domain, &key.entries));
        let rule = found.map(|found| truncate(&found.limit.stats_key));
        TopKeyShown::new(key, rule, rate(key.hits))
    });
    let refusals = sketch.refusals.iter().map(RefusalShown::new);
    Ok(json::ok(&TopKeysShown {
        since: since.into(),
        window_ms,
        keys: list_within(MAX_LISTS_BYTES / 2, keys),
        refusals: list_within(MAX_LISTS_BYTES / 2, refusals),
    }))
}
