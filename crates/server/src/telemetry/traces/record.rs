//! Record of a sampled call: its spans, until they are exported.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use tonic::Code;

use super::Queue;
use crate::base::clock;

/// The id of a span within its trace.
pub(crate) type SpanId = u64;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttributeValue {
    Text(String),
    Integer(i64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// A span of a call. Times are nanoseconds since 1970.
#[derive(Debug)]
pub(super) struct SpanRecord {
    pub(super) name: &'static str,
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
}

/// Kind of the first span of a record.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    #[default]
    Server,
    Client,
    /// Creates work for other processes, which may have their own spans below it.
    Producer,
}

/// Record of a call. The first span is the call itself; the others are parts of it.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) trace: u128,
    pub(super) side: SpanKind,
    /// Whether the parent of the first span is a span of the caller.
    pub(super) has_remote_parent: bool,
    pub(super) state: String,
    pub(super) spans: Vec<SpanRecord>,
    /// Error of the call, if it failed.
    pub(super) failure: Option<String>,
}

impl Record {
    /// Memory of the record in bytes, which is also about its encoded size.
    pub(super) fn bytes(&self) -> usize {
        let value = |(_, value): &(_, AttributeValue)| match value {
            AttributeValue::Text(text) => text.capacity(),
            AttributeValue::Integer(_) => 0,
        };
        let span = |span: &SpanRecord| {
            size_of::<SpanRecord>()
                + span.attributes.capacity() * size_of::<(&str, AttributeValue)>()
                + span.attributes.iter().map(value).sum::<usize>()
        };
        let texts = self.state.capacity() + self.failure.as_ref().map_or(0, String::capacity);
        size_of::<Self>() + texts + self.spans.iter().map(span).sum::<usize>()
    }
}

/// A part of a call, before its end is known.
pub(crate) struct SpanPart {
    pub(crate) name: &'static str,
    pub(crate) id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) begun: Instant,
    pub(crate) attributes: Vec<(&'static str, AttributeValue)>,
}

/// Trace of a call in progress. Its drop queues the record, even if the caller has left.
#[derive(Debug)]
pub(crate) struct Trace {
    record: Record,
    queue: Arc<Queue>,
    begun: Instant,
    wall_nanos: u64,
}

impl Trace {
    /// Begins a trace with the span of the call, named `name`. `state` is the caller's
    /// `tracestate`.
    pub(super) fn begin(
        name: &'static str,
        trace: u128,
        parent: Option<SpanId>,
        state: String,
        queue: Arc<Queue>,
    ) -> Box<Self> {
        let wall_nanos = clock::now().0.saturating_mul(1_000);
        let begun = Instant::now();
        let span = SpanRecord {
            name,
            id: Self::new_id(),
            parent,
            start: wall_nanos,
            end: 0,
            attributes: Vec::new(),
        };
        let mut spans = Vec::with_capacity(4);
        spans.push(span);
        let record = Record {
            trace,
            has_remote_parent: parent.is_some(),
            state,
            spans,
            ..Record::default()
        };
        Box::new(Self {
            record,
            queue,
            begun,
            wall_nanos,
        })
    }

    /// Sets the kind of the first span.
    pub(super) fn set_kind(&mut self, side: SpanKind) {
        self.record.side = side;
    }

    /// Value of the `traceparent` header for the server that is called.
    pub(super) fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-01", self.record.trace, self.call_span())
    }

    /// Creates an id for a span that is added later.
    pub(crate) fn new_id() -> SpanId {
        fastrand::u64(1..)
    }

    /// Id of the span of the call.
    pub(crate) fn call_span(&self) -> SpanId {
        self.record.spans[0].id
    }

    /// Adds a part of the call that ends now.
    pub(crate) fn add(&mut self, part: SpanPart) {
        let span = SpanRecord {
            name: part.name,
            id: part.id,
            parent: Some(part.parent),
            start: self.nanos(part.begun),
            end: self.nanos(Instant::now()),
            attributes: part.attributes,
        };
        self.record.spans.push(span);
    }

    /// Records the outcome of a gRPC call. Without an outcome, the caller has left.
    pub(crate) fn grpc_ended(&mut self, code: Code, failure: Option<&str>) {
        let service = "envoy.service.ratelimit.v3.RateLimitService";
        self.record.spans[0].attributes = vec![
            ("rpc.system", "grpc".into()),
            ("rpc.service", service.into()),
            ("rpc.method", "ShouldRateLimit".into()),
            ("rpc.grpc.status_code", (code as i64).into()),
        ];
        self.end(failure);
    }

    /// Records the outcome of an HTTP call.
    pub(crate) fn http_ended(&mut self, status: u16) {
        let code = i64::from(status);
        self.record.spans[0].attributes = vec![("http.response.status_code", code.into())];
        self.end((status >= 500).then_some("the call failed"));
    }

    fn end(&mut self, failure: Option<&str>) {
        self.record.failure = failure.map(str::to_owned);
        self.record.spans[0].end = self.nanos(Instant::now());
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begun).as_nanos();
        self.wall_nanos
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.record.spans[0].end == 0 {
            self.grpc_ended(
                Code::Cancelled,
                Some("the caller did not wait for the answer"),
            );
        }
        self.queue.add(mem::take(&mut self.record));
    }
}
