//! Record of a sampled call: its spans, until they are exported.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use tonic::Code;

use super::Queue;
use crate::net::clock;

/// The id of a span within its trace.
pub(crate) type SpanId = u64;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
}

/// A span of a call. Times are nanoseconds since 1970.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) name: &'static str,
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, Value)>,
}

/// Kind of the first span of a record.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
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
    pub(super) side: Side,
    /// Whether the parent of the first span is a span of the caller.
    pub(super) has_remote_parent: bool,
    pub(super) state: String,
    pub(super) spans: Vec<Span>,
    /// Error of the call, if it failed.
    pub(super) failure: Option<String>,
}

impl Record {
    /// Memory of the record in bytes, which is also about its encoded size.
    pub(super) fn bytes(&self) -> usize {
        let value = |(_, value): &(_, Value)| match value {
            Value::Text(text) => text.capacity(),
            Value::Integer(_) => 0,
        };
        let span = |span: &Span| {
            size_of::<Span>()
                + span.attributes.capacity() * size_of::<(&str, Value)>()
                + span.attributes.iter().map(value).sum::<usize>()
        };
        let texts = self.state.capacity() + self.failure.as_ref().map_or(0, String::capacity);
        size_of::<Self>() + texts + self.spans.iter().map(span).sum::<usize>()
    }
}

/// A part of a call, before its end is known.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) begun: Instant,
    pub(crate) attributes: Vec<(&'static str, Value)>,
}

/// Trace of a call in progress. Its drop queues the record, even if the caller has left.
#[derive(Debug)]
pub(crate) struct Trace {
    record: Record,
    queue: Arc<Queue>,
    begun: Instant,
    wall: u64,
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
        let wall = clock::now().0.saturating_mul(1_000);
        let begun = Instant::now();
        let span = Span {
            name,
            id: Self::new_id(),
            parent,
            start: wall,
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
            wall,
        })
    }

    /// Sets the kind of the first span.
    pub(super) fn is_seen_from(&mut self, side: Side) {
        self.record.side = side;
    }

    /// Value of the `traceparent` header for the server that is called.
    pub(super) fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-01", self.record.trace, self.call())
    }

    /// Creates an id for a span that is added later.
    pub(crate) fn new_id() -> SpanId {
        fastrand::u64(1..)
    }

    /// Id of the span of the call.
    pub(crate) fn call(&self) -> SpanId {
        self.record.spans[0].id
    }

    /// Adds a part of the call that ends now.
    pub(crate) fn add(&mut self, part: Part) {
        let span = Span {
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
    pub(crate) fn answered(&mut self, code: Code, failure: Option<&str>) {
        self.record.spans[0].attributes = vec![
            ("rpc.system", Value::Text("grpc".to_owned())),
            (
                "rpc.service",
                Value::Text("envoy.service.ratelimit.v3.RateLimitService".to_owned()),
            ),
            ("rpc.method", Value::Text("ShouldRateLimit".to_owned())),
            ("rpc.grpc.status_code", Value::Integer(code as i64)),
        ];
        self.end(failure);
    }

    /// Records the outcome of an HTTP call.
    pub(crate) fn responded(&mut self, status: u16) {
        self.record.spans[0].attributes =
            vec![("http.response.status_code", Value::Integer(status.into()))];
        self.end((status >= 500).then_some("the call failed"));
    }

    fn end(&mut self, failure: Option<&str>) {
        self.record.failure = failure.map(str::to_owned);
        self.record.spans[0].end = self.nanos(Instant::now());
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begun).as_nanos();
        self.wall
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.record.spans[0].end == 0 {
            self.answered(
                Code::Cancelled,
                Some("the caller did not wait for the answer"),
            );
        }
        self.queue.add(mem::take(&mut self.record));
    }
}
