//! The spans of a decision, with the reference's names of spans and attributes.

use std::time::Instant;

use tidegate_ratelimit::{Error, Facts, LimitDelta, Response, Status, Unit};

use super::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use super::text;
use crate::settings::Settings;
use crate::telemetry::traces::{AttributeValue, SpanId, SpanPart, Trace};

/// Maximum of characters of a domain.
const MAX_DOMAIN_CHARS: usize = 256;
/// Commands for each counter: INCRBY and EXPIRE.
const COMMANDS_PER_COUNTER: i64 = 2;

/// The store of counters, and the one of limits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedBy {
    /// This process: there is no wait, and no span.
    Memory,
    /// One Redis.
    Redis,
    /// Two Redis, the second one for limits per second.
    TwoRedis,
    /// memcached.
    Memcached,
}

impl CountedBy {
    pub(super) fn from_settings(settings: &Settings) -> Self {
        match (&settings.redis, &settings.memcache) {
            (_, Some(_)) => Self::Memcached,
            (Some(redis), None) if redis.per_second.is_some() => Self::TwoRedis,
            (Some(_), None) => Self::Redis,
            (None, None) => Self::Memory,
        }
    }
}

/// The span of a decision in progress.
pub(super) struct DecisionSpan {
    id: SpanId,
    begun: Instant,
    counted_by: CountedBy,
    domain: String,
    request: String,
}

impl DecisionSpan {
    pub(super) fn begin(message: &RateLimitRequest, counted_by: CountedBy) -> Self {
        Self {
            id: Trace::new_id(),
            begun: Instant::now(),
            counted_by,
            domain: message.domain.chars().take(MAX_DOMAIN_CHARS).collect(),
            request: text::request(message),
        }
    }

    /// Adds the span of the store, if it was called, and the span of the decision.
    pub(super) fn end(self, trace: &mut Trace, facts: &Facts, answer: &Result<Response, Error>) {
        if let Some((name, attributes)) = store_span(self.counted_by, facts, answer) {
            trace.add(SpanPart {
                name,
                id: Trace::new_id(),
                parent: self.id,
                begun: self.begun,
                attributes,
            });
        }
        let attributes = vec![
            ("domain", AttributeValue::Text(self.domain)),
            ("request string", AttributeValue::Text(self.request)),
        ];
        trace.add(SpanPart {
            name: "ShouldRateLimit Execution",
            id: self.id,
            parent: trace.call_span(),
            begun: self.begun,
            attributes,
        });
    }
}

type StoreSpan = (&'static str, Vec<(&'static str, AttributeValue)>);

/// Returns the span of the store. `None` if the store was not called.
fn store_span(
    counted_by: CountedBy,
    facts: &Facts,
    answer: &Result<Response, Error>,
) -> Option<StoreSpan> {
    let statuses = match answer {
        Ok(response) => Some(&*response.statuses),
        Err(Error::Store(_)) => None,
        Err(_) => return None,
    };
    let [main, per_second] =
        counters_per_store(&facts.tallies, statuses, counted_by == CountedBy::TwoRedis);
    let length = |counters: i64| AttributeValue::Integer(counters * COMMANDS_PER_COUNTER);
    match counted_by {
        CountedBy::Memory => None,
        CountedBy::Memcached => Some((
            "Memcached Fetch Execution",
            vec![("keysToGet length", AttributeValue::Integer(main))],
        )),
        CountedBy::Redis | CountedBy::TwoRedis => Some((
            "Redis Pipeline Execution",
            vec![
                ("pipeline length", length(main)),
                ("perSecondPipeline length", length(per_second)),
            ],
        )),
    }
}

/// Returns the number of counters in the call of each store. If the store has failed, it is unknown
/// which limits are per second.
fn counters_per_store(
    tallies: &[LimitDelta],
    statuses: Option<&[Status]>,
    are_two: bool,
) -> [i64; 2] {
    let mut counters = [0, 0];
    let mut limits = statuses
        .unwrap_or_default()
        .iter()
        .filter_map(|status| status.limit.as_ref());
    for tally in tallies {
        let is_per_second = are_two
            && limits
                .next()
                .is_some_and(|limit| limit.unit == Unit::Second);
        // The local cache knew that this limit is exceeded.
        if tally.over_limit_with_local_cache == 0 {
            counters[usize::from(is_per_second)] += 1;
        }
    }
    counters
}
