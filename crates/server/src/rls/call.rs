//! Handles one call, from gRPC or `/json`: message -> Request -> Limiter -> message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use prost_types::value::Kind;
use tidegate_ratelimit::{
    Code, Descriptor, Entry, Error, Facts, LimitHeaders, Limiter, Override, Request, Response,
    StoreError,
};
use tracing::warn;

use super::store::redis;
use crate::base::clock;
use crate::rls::bounds::{RequestBounds, RequestExcess};
use crate::rls::proto::envoy::config::core::v3::HeaderValue;
use crate::rls::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::rls::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    self, DescriptorStatus, RateLimit,
};
use crate::rls::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::rls::traced::{CountedBy, DecisionSpan};
use crate::settings::{Settings, SettingsOrigin};
use crate::telemetry::decisions;
use crate::telemetry::metrics::{CallFailure, ExcessKind, Shard};
use crate::telemetry::traces::{Trace, Traces};

/// Answers calls on one core. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    inner: Arc<CallContext>,
}

#[derive(Debug)]
struct CallContext {
    limiter: Limiter,
    metrics: Arc<Shard>,
    timeout: Duration,
    request_bounds: RequestBounds,
    header_names: [String; 3],
    /// `None` if no call is traced.
    traces: Option<Traces>,
    counted_by: CountedBy,
    /// The settings of Redis, for messages. `None` without Redis.
    origin: Option<SettingsOrigin>,
    /// Requests that were refused before they were decoded, and the minute of the last log line.
    refused: AtomicU64,
    last_refusal_minute: AtomicU64,
    /// The second of the last log line about a store failure.
    last_failure_second: AtomicU64,
}

impl Calls {
    /// Answers from `limiter`. Waits for its store at most the time that the settings allow.
    pub(crate) fn new(
        limiter: Limiter,
        metrics: Arc<Shard>,
        traces: Option<Traces>,
        settings: &Settings,
    ) -> Self {
        let timeout = store_timeout(settings);
        let inner = CallContext {
            limiter,
            metrics,
            timeout,
            request_bounds: RequestBounds::new(settings.max_descriptors),
            header_names: settings.header_names.clone(),
            traces,
            counted_by: CountedBy::from_settings(settings),
            origin: settings
                .redis
                .as_ref()
                .map(|redis| redis.main.origin.clone()),
            refused: AtomicU64::new(0),
            last_refusal_minute: AtomicU64::new(0),
            last_failure_second: AtomicU64::new(0),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The bounds of a request, which are checked before it is decoded.
    pub(crate) fn bounds(&self) -> RequestBounds {
        self.inner.request_bounds
    }

    /// Counts a request that was not decoded. Returns the text for the caller.
    pub(crate) fn refuse(&self, excess: RequestExcess) -> String {
        self.inner.metrics.failure(CallFailure::Service);
        self.inner.metrics.excess(match excess {
            RequestExcess::Descriptors { .. } => ExcessKind::Descriptors,
            RequestExcess::Entries { .. } => ExcessKind::Entries,
        });
        let now = clock::now().0 / 60_000_000;
        let refused = self.inner.refused.fetch_add(1, Relaxed) + 1;
        // At most once a minute, because the caller decides how often this happens.
        if self.inner.last_refusal_minute.swap(now, Relaxed) != now {
            warn!(
                refused,
                "requests are refused unread: {excess}. Envoy lets such a request pass unless failure_mode_deny is set"
            );
        }
        excess.to_string()
    }

    /// The counters of this core.
    pub(crate) fn metrics(&self) -> &Shard {
        &self.inner.metrics
    }

    /// Begins the traces of calls, if any are traced.
    #[inline]
    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.inner.traces.as_ref()
    }

    /// Decides, counts the result, and adds spans to `trace` if the call is sampled. `timeout` is
    /// the caller's deadline, if it set one.
    ///
    /// # Cancellation
    /// A dropped call is counted as a store failure. The effect on counters is that of
    /// [`Limiter::check`].
    pub(crate) async fn decide(
        &self,
        message: RateLimitRequest,
        started: Instant,
        timeout: Option<Duration>,
        trace: Option<&mut Trace>,
    ) -> Result<RateLimitResponse, Error> {
        // In a box, so that calls without a trace take no more memory.
        let span = trace.map(|trace| {
            let span = DecisionSpan::begin(&message, self.inner.counted_by);
            (Box::new(span), trace)
        });
        let mut counting = Counting::new(&self.inner.metrics, request(message));
        let answer = self.check(&mut counting, started, timeout).await;
        if let Some((span, trace)) = span {
            span.end(trace, &counting.facts, &answer);
        }
        answer.map(|response| response_message(response, &self.inner.header_names))
    }

    /// Calls the limiter, and updates the counters and the log.
    #[inline]
    async fn check(
        &self,
        counting: &mut Counting<'_>,
        started: Instant,
        timeout: Option<Duration>,
    ) -> Result<Response, Error> {
        let CallContext {
            limiter, metrics, ..
        } = &*self.inner;
        let timeout = timeout.map_or(self.inner.timeout, |timeout| {
            timeout.min(self.inner.timeout)
        });
        let answer = limiter
            .check(
                &counting.request,
                clock::now(),
                started + timeout,
                &mut counting.facts,
            )
            .await;
        counting.failure = answer.as_ref().err().map(failure);
        decisions::log(&counting.request, &answer);
        match &answer {
            Err(Error::Store(cause)) => self.log(cause),
            Ok(_) => metrics.answered(&counting.facts, second),
            Err(_) => {}
        }
        answer
    }

    fn log(&self, cause: &StoreError) {
        // At most once a second: if the store fails, every call fails, and a line for each would
        // flood the log.
        let second = second();
        self.inner.metrics.store_failed(second);
        if self.inner.last_failure_second.swap(second, Relaxed) != second {
            let advice = self
                .inner
                .origin
                .as_ref()
                .and_then(|origin| redis::login_advice(&cause.to_string(), origin));
            match advice {
                Some(advice) => {
                    warn!(error = %cause, "redis does not count for this server, so calls get an error: {advice}")
                }
                None => {
                    warn!(error = %cause, "the store of counters failed, so calls get an error")
                }
            }
        }
    }
}

/// Maximum of time for a call of the store of counters.
pub(crate) fn store_timeout(settings: &Settings) -> Duration {
    let servers = settings
        .redis
        .iter()
        .flat_map(|redis| std::iter::once(&redis.main).chain(&redis.per_second));
    servers
        .map(|server| server.timeout)
        .fold(settings.call_timeout, Duration::min)
}

/// Counts a call when this is dropped: at its end, or when its client has reset it. Its hits were
/// sent to the store by then.
struct Counting<'c> {
    metrics: &'c Shard,
    request: Request,
    facts: Facts,
    failure: Option<CallFailure>,
}

impl<'c> Counting<'c> {
    /// A call waits only for its store, so a call that goes no further failed there.
    fn new(metrics: &'c Shard, request: Request) -> Self {
        Self {
            metrics,
            request,
            facts: Facts::default(),
            failure: Some(CallFailure::Store),
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.metrics.decision(&self.request.domain, &self.facts);
        if let Some(failure) = self.failure {
            self.metrics.failure(failure);
        }
    }
}

/// The current time in seconds.
fn second() -> u64 {
    clock::now().0 / 1_000_000
}

fn failure(error: &Error) -> CallFailure {
    match error {
        Error::Store(_) => CallFailure::Store,
        _ => CallFailure::Service,
    }
}

fn request(message: RateLimitRequest) -> Request {
    Request {
        domain: message.domain,
        descriptors: message.descriptors.into_iter().map(descriptor).collect(),
        hits_addend: message.hits_addend,
    }
}

fn descriptor(message: RateLimitDescriptor) -> Descriptor {
    let entries = message.entries.into_iter().map(|entry| Entry {
        key: entry.key,
        value: entry.value,
    });
    Descriptor {
        entries: entries.collect(),
        limit: message.limit.map(|limit| Override {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
        }),
        hits_addend: message.hits_addend,
        is_negative_hits: message.is_negative_hits,
    }
}

fn response_message(response: Response, header_names: &[String; 3]) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: code(response.code),
        statuses: response.statuses.into_iter().map(status_message).collect(),
        response_headers_to_add: response
            .headers
            .map_or_else(Vec::new, |headers| header_values(headers, header_names)),
        dynamic_metadata: response.dynamic_metadata.map(proto_struct),
        ..RateLimitResponse::default()
    }
}

fn status_message(status: tidegate_ratelimit::Status) -> DescriptorStatus {
    DescriptorStatus {
        code: code(status.code),
        current_limit: status.limit.map(|limit| RateLimit {
            name: limit.name,
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit.number(),
        }),
        limit_remaining: status.remaining,
        duration_until_reset: status
            .seconds_until_reset
            .map(|seconds| prost_types::Duration {
                seconds: i64::from(seconds),
                nanos: 0,
            }),
        quota: None,
    }
}

fn code(code: Code) -> i32 {
    match code {
        Code::Ok => rate_limit_response::Code::Ok as i32,
        Code::OverLimit => rate_limit_response::Code::OverLimit as i32,
    }
}

fn header_values(headers: LimitHeaders, names: &[String; 3]) -> Vec<HeaderValue> {
    let values = [headers.limit, headers.remaining, headers.reset];
    let header = |(name, value): (&String, u32)| HeaderValue {
        key: name.clone(),
        value: value.to_string(),
        ..HeaderValue::default()
    };
    names.iter().zip(values).map(header).collect()
}

fn proto_struct(map: serde_json::Map<String, serde_json::Value>) -> prost_types::Struct {
    prost_types::Struct {
        fields: map
            .into_iter()
            .map(|(name, value)| (name, proto_value(value)))
            .collect(),
    }
}

fn proto_value(value: serde_json::Value) -> prost_types::Value {
    use serde_json::Value;
    match value {
        Value::Null => prost_types::Value {
            kind: Some(Kind::NullValue(0)),
        },
        Value::Bool(value) => value.into(),
        Value::Number(value) => value.as_f64().unwrap_or(f64::NAN).into(),
        Value::String(value) => value.into(),
        Value::Array(values) => {
            let values: Vec<_> = values.into_iter().map(proto_value).collect();
            values.into()
        }
        Value::Object(map) => proto_struct(map).fields.into(),
    }
}
