//! Protobuf text format of messages: `overall_code:OK statuses:{code:OK}`.

use std::fmt::Write as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage as _, Value};

/// A message in one line. Fields with default values are omitted.
pub(super) fn message_text(message: &DynamicMessage) -> String {
    let descriptor = message.descriptor();
    // In the order of declaration.
    let fields = descriptor
        .descriptor_proto()
        .field
        .iter()
        .filter_map(|field| descriptor.get_field_by_name(field.name()));
    let shown = fields
        .filter(|field| message.has_field(field))
        .map(|field| field_text(&field, &message.get_field(&field)));
    shown.collect::<Vec<_>>().join(" ")
}

/// A field, repeated for each of its values.
fn field_text(field: &FieldDescriptor, value: &Value) -> String {
    let name = field.name();
    match value {
        Value::List(values) => {
            let each = values
                .iter()
                .map(|value| format!("{name}:{}", value_text(field, value)));
            each.collect::<Vec<_>>().join(" ")
        }
        Value::Map(pairs) => {
            let mut pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| {
                    (
                        value_text(field, &key.clone().into()),
                        value_text(field, value),
                    )
                })
                .collect();
            pairs.sort();
            let each = pairs
                .iter()
                .map(|(key, value)| format!("{name}:{{key:{key} value:{value}}}"));
            each.collect::<Vec<_>>().join(" ")
        }
        value => format!("{name}:{}", value_text(field, value)),
    }
}

fn value_text(field: &FieldDescriptor, value: &Value) -> String {
    match value {
        Value::Message(message) => format!("{{{}}}", message_text(message)),
        Value::String(text) => quoted(text.as_bytes()),
        Value::Bytes(bytes) => quoted(bytes),
        Value::EnumNumber(number) => {
            let kind = field.kind();
            let name = kind.as_enum().and_then(|names| names.get_value(*number));
            name.map_or_else(|| number.to_string(), |name| name.name().to_owned())
        }
        Value::Bool(value) => value.to_string(),
        Value::I32(number) => number.to_string(),
        Value::I64(number) => number.to_string(),
        Value::U32(number) => number.to_string(),
        Value::U64(number) => number.to_string(),
        Value::F32(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
        Value::List(_) | Value::Map(_) => unreachable!("a value of a field is no collection"),
    }
}

/// A string literal. Characters that are not printable are escaped.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for part in bytes.utf8_chunks() {
        for letter in part.valid().chars() {
            match letter {
                '"' | '\\' => out.extend(['\\', letter]),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                letter if letter.is_control() => {
                    let _ = write!(out, "\\x{:02x}", u32::from(letter));
                }
                letter => out.push(letter),
            }
        }
        for byte in part.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use prost_types::value::Kind;
    use prost_types::{Duration, Struct, Value};

    use crate::rls::json::dynamic;
    use crate::rls::proto::envoy::config::core::v3::HeaderValue;
    use crate::rls::proto::envoy::service::ratelimit::v3::RateLimitResponse;
    use crate::rls::proto::envoy::service::ratelimit::v3::rate_limit_response::{
        DescriptorStatus, RateLimit,
    };

    #[test]
    fn answers_are_printed_as_protobuf_prints_them() {
        let limit = RateLimit {
            name: "a \"b\"\n".into(),
            requests_per_unit: 50,
            unit: 1,
        };
        let status = DescriptorStatus {
            code: 2,
            current_limit: Some(limit),
            limit_remaining: 49,
            duration_until_reset: Some(Duration {
                seconds: 1,
                nanos: 0,
            }),
            ..DescriptorStatus::default()
        };
        let header = HeaderValue {
            key: "k".into(),
            value: "v".into(),
            ..HeaderValue::default()
        };
        let number = Value {
            kind: Some(Kind::NumberValue(1.5)),
        };
        let text = Value {
            kind: Some(Kind::StringValue("é\u{7}".into())),
        };
        let response = RateLimitResponse {
            overall_code: 2,
            statuses: vec![
                status,
                DescriptorStatus {
                    code: 1,
                    ..DescriptorStatus::default()
                },
            ],
            response_headers_to_add: vec![header],
            dynamic_metadata: Some(Struct {
                fields: [("b".to_owned(), text), ("a".to_owned(), number)].into(),
            }),
            ..RateLimitResponse::default()
        };
        assert_eq!(
            super::message_text(&dynamic(&response)),
            "overall_code:OVER_LIMIT statuses:{code:OVER_LIMIT current_limit:{name:\"a \\\"b\\\"\\n\" requests_per_unit:50 \
             unit:SECOND} limit_remaining:49 duration_until_reset:{seconds:1}} statuses:{code:OK} \
             response_headers_to_add:{key:\"k\" value:\"v\"} dynamic_metadata:{fields:{key:\"a\" \
             value:{number_value:1.5}} fields:{key:\"b\" value:{string_value:\"é\\x07\"}}}"
        );
    }
}
