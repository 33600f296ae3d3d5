//! Messages of OTLP 1 for traces, with the fields that are sent. Numbers and names are those of the
//! protocol.

use prost::Message;

use super::record::{AttributeValue, Record, SpanKind};

/// Version of the semantic conventions for the attributes of the resource.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.7.0";
/// Bits of `flags`: the span is sampled, the location of its parent is known, and the parent is
/// remote.
const SAMPLED: u32 = 1;
const PARENT_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(enumeration = "Kind", tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<SpanStatus>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Unspecified = 0,
    Internal = 1,
    Server = 2,
    Client = 3,
    Producer = 4,
}

#[derive(Clone, PartialEq, Message)]
struct SpanStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(enumeration = "StatusCode", tag = "3")]
    code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum StatusCode {
    Unset = 0,
    Error = 2,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "OneValue", tags = "1, 3")]
    value: Option<OneValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OneValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Integer(i64),
}

/// Answer of a collector.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

/// Resource that describes this server by its name, its namespace and its instance.
pub(super) fn resource(service: &[String; 3]) -> Resource {
    let names = ["service.name", "service.namespace", "service.instance.id"];
    let attributes = names
        .into_iter()
        .zip(service)
        .map(|(name, value)| key_value(name, AttributeValue::Text(value.clone())));
    Resource {
        attributes: attributes.collect(),
    }
}

/// Message with the spans of these calls.
pub(super) fn request(resource: &Resource, records: Vec<Record>) -> ExportRequest {
    let scope = InstrumentationScope {
        name: "tidegate".to_owned(),
        version: crate::VERSION.to_owned(),
    };
    let scope_spans = ScopeSpans {
        scope: Some(scope),
        spans: records.into_iter().flat_map(spans).collect(),
    };
    ExportRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![scope_spans],
            schema_url: SCHEMA.to_owned(),
        }],
    }
}

fn spans(record: Record) -> impl Iterator<Item = OtlpSpan> {
    let Record {
        trace,
        side,
        has_remote_parent,
        state,
        spans,
        mut failure,
    } = record;
    let call = match side {
        SpanKind::Server => Kind::Server,
        SpanKind::Client => Kind::Client,
        SpanKind::Producer => Kind::Producer,
    };
    spans.into_iter().enumerate().map(move |(at, part)| {
        let is_call = at == 0;
        let remote_flag = if is_call && has_remote_parent {
            PARENT_REMOTE
        } else {
            0
        };
        OtlpSpan {
            trace_id: trace.to_be_bytes().to_vec(),
            span_id: part.id.to_be_bytes().to_vec(),
            trace_state: state.clone(),
            parent_span_id: part
                .parent
                .map_or_else(Vec::new, |parent| parent.to_be_bytes().to_vec()),
            name: part.name.to_owned(),
            kind: if is_call { call } else { Kind::Internal }.into(),
            start_time_unix_nano: part.start,
            end_time_unix_nano: part.end,
            attributes: part
                .attributes
                .into_iter()
                .map(|(key, value)| key_value(key, value))
                .collect(),
            status: failure.take().map(|message| SpanStatus {
                message,
                code: StatusCode::Error.into(),
            }),
            flags: SAMPLED | PARENT_KNOWN | remote_flag,
        }
    })
}

fn key_value(key: &str, value: AttributeValue) -> KeyValue {
    let value = match value {
        AttributeValue::Text(text) => OneValue::Text(text),
        AttributeValue::Integer(number) => OneValue::Integer(number),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}
