//! Protobuf text format of messages on one line, as the reference prints them:
//! `overall_code:OK statuses:{code:OK}`.

use std::fmt::{self, Write};
use std::sync::LazyLock;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MapKey, ReflectMessage as _, Value,
};

use super::proto::SERVICE_DESCRIPTORS;
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// Maximum of bytes of a text for a trace. A request of Envoy takes a few hundred.
const MAX_TEXT_BYTES: usize = 4 * 1024;
/// The end of a text that was cut.
const ELLIPSIS: &str = "...";

/// The descriptors of the messages, for the mapping to JSON and text. Decoded at the first use.
static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(SERVICE_DESCRIPTORS)
        .expect("committed descriptors are valid, as a test shows")
});

/// Formats a request for a trace.
pub(super) fn request(request: &RateLimitRequest) -> String {
    bounded(&dynamic(request))
}

/// Formats an answer for a trace, without its metadata.
pub(super) fn response(response: &RateLimitResponse) -> String {
    let mut message = dynamic(response);
    message.clear_field_by_name("dynamic_metadata");
    bounded(&message)
}

/// A message of the service.
pub(crate) trait ServiceMessage: prost::Message {
    const TYPE_NAME: &str;
}

impl ServiceMessage for RateLimitRequest {
    const TYPE_NAME: &str = "envoy.service.ratelimit.v3.RateLimitRequest";
}

impl ServiceMessage for RateLimitResponse {
    const TYPE_NAME: &str = "envoy.service.ratelimit.v3.RateLimitResponse";
}

/// Converts a message of the service to one with the names of its fields.
pub(crate) fn dynamic<M: ServiceMessage>(typed: &M) -> DynamicMessage {
    let descriptor = DESCRIPTORS
        .get_message_by_name(M::TYPE_NAME)
        .expect("the descriptors are those of the service");
    let mut message = DynamicMessage::new(descriptor);
    message
        .transcode_from(typed)
        .expect("the message is of this type");
    message
}

/// Formats a message. Fields with default values are omitted.
pub(crate) fn whole(message: &DynamicMessage) -> String {
    let mut text = String::new();
    write_message(&mut text, message).expect("a string takes every text");
    text
}

fn bounded(message: &DynamicMessage) -> String {
    let mut text = BoundedText(String::new());
    if write_message(&mut text, message).is_err() {
        text.0.push_str(ELLIPSIS);
    }
    text.0
}

/// A text that accepts no more than its bound.
struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, addition: &str) -> fmt::Result {
        let room = MAX_TEXT_BYTES.saturating_sub(self.0.len() + ELLIPSIS.len());
        if addition.len() <= room {
            self.0.push_str(addition);
            return Ok(());
        }
        let cut = (0..=room)
            .rev()
            .find(|at| addition.is_char_boundary(*at))
            .unwrap_or(0);
        self.0.push_str(&addition[..cut]);
        Err(fmt::Error)
    }
}

fn write_message(text: &mut dyn Write, message: &DynamicMessage) -> fmt::Result {
    let descriptor = message.descriptor();
    // In the order of declaration.
    let fields = descriptor.descriptor_proto().field.iter();
    let fields = fields.filter_map(|field| descriptor.get_field_by_name(field.name()));
    let mut space = "";
    for field in fields.filter(|field| message.has_field(field)) {
        let name = field.name();
        match &*message.get_field(&field) {
            Value::List(values) => {
                for value in values {
                    write!(text, "{space}{name}:")?;
                    write_value(text, &field, value)?;
                    space = " ";
                }
            }
            Value::Map(pairs) => {
                let mut pairs: Vec<_> = pairs.iter().collect();
                pairs.sort_by_key(|(key, _)| *key);
                for (key, value) in pairs {
                    write!(text, "{space}{name}:")?;
                    write_pair(text, &field, key, value)?;
                    space = " ";
                }
            }
            value => {
                write!(text, "{space}{name}:")?;
                write_value(text, &field, value)?;
            }
        }
        space = " ";
    }
    Ok(())
}

/// Writes a key of a map and its value.
fn write_pair(
    text: &mut dyn Write,
    field: &FieldDescriptor,
    key: &MapKey,
    value: &Value,
) -> fmt::Result {
    text.write_str("{key:")?;
    write_value(text, field, &key.clone().into())?;
    text.write_str(" value:")?;
    write_value(text, field, value)?;
    text.write_char('}')
}

/// Writes a value of a field, or a key of a map.
fn write_value(text: &mut dyn Write, field: &FieldDescriptor, value: &Value) -> fmt::Result {
    match value {
        Value::Message(message) => {
            text.write_char('{')?;
            write_message(text, message)?;
            text.write_char('}')
        }
        Value::String(value) => write_quoted(text, value.as_bytes()),
        Value::Bytes(bytes) => write_quoted(text, bytes),
        Value::EnumNumber(number) => {
            let kind = field.kind();
            match kind.as_enum().and_then(|names| names.get_value(*number)) {
                Some(value) => text.write_str(value.name()),
                None => write!(text, "{number}"),
            }
        }
        Value::Bool(value) => write!(text, "{value}"),
        Value::I32(number) => write!(text, "{number}"),
        Value::I64(number) => write!(text, "{number}"),
        Value::U32(number) => write!(text, "{number}"),
        Value::U64(number) => write!(text, "{number}"),
        Value::F32(number) => write!(text, "{number}"),
        Value::F64(number) => write!(text, "{number}"),
        Value::List(_) | Value::Map(_) => unreachable!("a value of a field is no collection"),
    }
}

/// Writes a string literal. Characters that are not printable are escaped.
fn write_quoted(text: &mut dyn Write, bytes: &[u8]) -> fmt::Result {
    text.write_char('"')?;
    for part in bytes.utf8_chunks() {
        for letter in part.valid().chars() {
            match letter {
                '"' | '\\' => write!(text, "\\{letter}")?,
                '\n' => text.write_str("\\n")?,
                '\r' => text.write_str("\\r")?,
                '\t' => text.write_str("\\t")?,
                letter if letter.is_control() => write!(text, "\\x{:02x}", u32::from(letter))?,
                letter => text.write_char(letter)?,
            }
        }
        for byte in part.invalid() {
            write!(text, "\\x{byte:02x}")?;
        }
    }
    text.write_char('"')
}

/// A string literal. Characters that are not printable are escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_quoted(&mut out, text.as_bytes()).expect("a string takes every text");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::value::Kind;
    use prost_types::{Duration, Struct, Value as JsonValue};

    use crate::rls::proto::envoy::config::core::v3::HeaderValue;
    use crate::rls::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use crate::rls::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
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
        let number = JsonValue {
            kind: Some(Kind::NumberValue(1.5)),
        };
        let text = JsonValue {
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
            whole(&dynamic(&response)),
            "overall_code:OVER_LIMIT statuses:{code:OVER_LIMIT current_limit:{name:\"a \\\"b\\\"\\n\" requests_per_unit:50 \
             unit:SECOND} limit_remaining:49 duration_until_reset:{seconds:1}} statuses:{code:OK} \
             response_headers_to_add:{key:\"k\" value:\"v\"} dynamic_metadata:{fields:{key:\"a\" \
             value:{number_value:1.5}} fields:{key:\"b\" value:{string_value:\"é\\x07\"}}}"
        );
    }

    fn with_value(value: &str) -> RateLimitRequest {
        let entry = Entry {
            key: "user".to_owned(),
            value: value.to_owned(),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        };
        RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 2,
        }
    }

    #[test]
    fn requests_are_shown_as_protobuf_text() {
        let expected = r#"domain:"shop" descriptors:{entries:{key:"user" value:"a\"\n\x01\\é"}} hits_addend:2"#;
        assert_eq!(request(&with_value("a\"\n\u{1}\\é")), expected);
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = request(&with_value(&"é".repeat(100_000)));
        assert!(
            text.len() <= MAX_TEXT_BYTES
                && text.len() > MAX_TEXT_BYTES - 8
                && text.ends_with("é..."),
            "{}",
            text.len()
        );
    }
}
