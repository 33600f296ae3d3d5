//! The spans of a decision, with the reference's names of spans and attributes.

use std::time::Instant;

use tidegate_ratelimit::{Error, Facts, LimitDelta, Response, Status, Unit};

use super::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use super::text;
use crate::settings::Settings;
use crate::telemetry::traces::{Part, SpanId, Trace, Value};

/// Maximum of characters of a domain.
const DOMAIN: usize = 256;
/// Commands for each counter: INCRBY and EXPIRE.
const COMMANDS: i64 = 2;

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
    pub(super) fn of(settings: &Settings) -> Self {
        match (&settings.redis, &settings.memcache) {
            (_, Some(_)) => Self::Memcached,
            (Some(redis), None) if redis.per_second.is_some() => Self::TwoRedis,
            (Some(_), None) => Self::Redis,
            (None, None) => Self::Memory,
        }
    }
}

/// The span of a decision in progress.
pub(super) struct Execution {
    id: SpanId,
    begun: Instant,
    counted_by: CountedBy,
    domain: String,
    request: String,
}

impl Execution {
    pub(super) fn begin(message: &RateLimitRequest, counted_by: CountedBy) -> Self {
        Self {
            id: Trace::new_id(),
            begun: Instant::now(),
            counted_by,
            domain: message.domain.chars().take(DOMAIN).collect(),
            request: text::request(message),
        }
    }

    /// Adds the span of the store, whose call began at `store_call_started`, and the span of the
    /// decision.
    pub(super) fn end(
        self,
        trace: &mut Trace,
        asked: Instant,
        facts: &Facts,
        answer: &Result<Response, Error>,
    ) {
        if let Some((name, attributes)) = store(self.counted_by, facts, answer) {
            trace.add(Part {
                name,
                id: Trace::new_id(),
                parent: self.id,
                begun: asked,
                attributes,
            });
        }
        let attributes = vec![
            ("domain", Value::Text(self.domain)),
            ("request string", Value::Text(self.request)),
        ];
        trace.add(Part {
            name: "ShouldRateLimit Execution",
            id: self.id,
            parent: trace.call(),
            begun: self.begun,
            attributes,
        });
    }
}

type Described = (&'static str, Vec<(&'static str, Value)>);

/// Returns the span of the store. `None` if the store was not called.
fn store(
    counted_by: CountedBy,
    facts: &Facts,
    answer: &Result<Response, Error>,
) -> Option<Described> {
    let statuses = match answer {
        Ok(response) => Some(&*response.statuses),
        Err(Error::Store(_)) => None,
        Err(_) => return None,
    };
    let [main, per_second] = asked(&facts.tallies, statuses, counted_by == CountedBy::TwoRedis);
    let length = |counters: i64| Value::Integer(counters * COMMANDS);
    match counted_by {
        CountedBy::Memory => None,
        CountedBy::Memcached => Some((
            "Memcached Fetch Execution",
            vec![("keysToGet length", Value::Integer(main))],
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
fn asked(tallies: &[LimitDelta], statuses: Option<&[Status]>, are_two: bool) -> [i64; 2] {
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
