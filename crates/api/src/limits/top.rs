//! Keys with the most hits, and the latest refusals, of requests and of jobs.

use serde::Serialize;
use tidegate_ratelimit::Caller;
#[cfg(test)]
use utoipa::ToSchema;

use super::pairs;
use crate::http::json;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};

/// Keys with the most hits at this server, and its latest refusals.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = TopKeys))]
pub(crate) struct TopKeysShown<'a> {
    /// When the counting of `hits` began: one to two minutes ago.
    since: Rfc3339,
    /// Keys with a limit, at most 128, those with the most hits first. A key with less than about a hundredth of all hits may be missing.
    #[cfg_attr(test, schema(max_items = 128))]
    keys: Vec<TopKeyShown<'a>>,
    /// At most 128, the latest first. Of many in one second, some are missing.
    #[cfg_attr(test, schema(max_items = 128))]
    refusals: Vec<RefusalShown<'a>>,
}

/// A key, and how many hits were asked of it. Hits of jobs are those that were granted.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = TopKey))]
struct TopKeyShown<'a> {
    domain: &'a str,
    /// Pairs of a key and a value. What is long is cut.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(&'a str, &'a str)>,
    hits: u64,
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

const fn caller(caller: Caller) -> &'static str {
    match caller {
        Caller::Request => "request",
        Caller::Job => "job",
    }
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let limits = &request.api.hooks.limits;
    let sketch = limits.limiter.sketch(limits.now());
    let keys = sketch.top.iter().map(|key| TopKeyShown {
        domain: &key.domain,
        entries: pairs(&key.entries),
        hits: key.hits,
        is_estimate: key.is_estimate,
    });
    let refusals = sketch.refusals.iter().map(|refusal| RefusalShown {
        at: refusal.at.into(),
        caller: caller(refusal.caller),
        domain: &refusal.domain,
        entries: pairs(&refusal.entries),
    });
    Ok(json::ok(&TopKeysShown {
        since: sketch.since.into(),
        keys: keys.collect(),
        refusals: refusals.collect(),
    }))
}
