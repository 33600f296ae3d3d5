//! One sampled call: its spans, until somebody sends them.

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

/// A part of a call. Times are nanoseconds since 1970.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) name: &'static str,
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, Value)>,
}

/// On which side of a call its first span is, or what it is instead.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    #[default]
    Server,
    Client,
    /// Work for others, who may have spans of their own below it.
    Producer,
}

/// What is known of a call. The first span is the call itself; the others are parts of it.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) trace: u128,
    pub(super) side: Side,
    /// Whether the parent of the first span is the caller's.
    pub(super) has_remote_parent: bool,
    pub(super) state: String,
    pub(super) spans: Vec<Span>,
    /// Why the call failed.
    pub(super) failure: Option<String>,
}

impl Record {
    /// What it takes, and about what it takes when it is encoded.
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

/// A part of a call.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) begun: Instant,
    pub(crate) attributes: Vec<(&'static str, Value)>,
}

/// The trace of a call in progress. It is handed on when it is dropped: also when the caller has left.
#[derive(Debug)]
pub(crate) struct Trace {
    record: Record,
    queue: Arc<Queue>,
    begun: Instant,
    wall: u64,
}

impl Trace {
    /// Begins with the span of the call, named `name`; `state` is the vendors' part of the caller's context.
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

    /// Says on which side the call is seen.
    pub(super) fn is_seen_from(&mut self, side: Side) {
        self.record.side = side;
    }

    /// The context of the call, for who is called.
    pub(super) fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-01", self.record.trace, self.call())
    }

    /// An id for a span that is added later.
    pub(crate) fn new_id() -> SpanId {
        fastrand::u64(1..)
    }

    /// The span of the call.
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

    /// Says how a gRPC call ended. Without it, its caller has left.
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

    /// Says how a call of HTTP ended.
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
