//! Bounds on one request. They count its encoded bytes, because 4 MiB can become 2,000,000 objects.

mod json;

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde::de::DeserializeSeed as _;
use thiserror::Error;

/// Entries per allowed descriptor; one descriptor may have more. Real descriptors have up to ten.
const ENTRIES: usize = 16;

/// Fields of `RateLimitRequest` and `RateLimitDescriptor`.
const DESCRIPTORS_FIELD: u32 = 2;
const ENTRIES_FIELD: u32 = 1;

/// The maximum of descriptors in a request, which also bounds its entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestBounds {
    descriptors: usize,
}

/// The request exceeds the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum RequestExcess {
    #[error(
        "the request has more than {most} descriptors: send fewer at a time, or raise TIDEGATE_MAX_DESCRIPTORS"
    )]
    Descriptors { most: usize },
    #[error(
        "the descriptors of the request have more than {most} entries together, {ENTRIES} for each that \
         TIDEGATE_MAX_DESCRIPTORS allows: send fewer at a time, or raise that setting"
    )]
    Entries { most: usize },
}

/// Counts so far.
#[derive(Debug, Default)]
struct RequestSize {
    descriptors: usize,
    entries: usize,
}

impl RequestBounds {
    pub(crate) fn new(descriptors: usize) -> Self {
        Self { descriptors }
    }

    /// Checks a request in protobuf. Invalid protobuf is left to the decoder, which stops at the
    /// same byte.
    pub(crate) fn check_protobuf(self, message: &[u8]) -> Result<(), RequestExcess> {
        // A descriptor and an entry take two bytes at least, so nearly all messages need no count.
        if message.len() / 2 <= self.descriptors {
            return Ok(());
        }
        let mut size = RequestSize::default();
        for descriptor in fields(message, DESCRIPTORS_FIELD) {
            size.descriptors += 1;
            self.check(&size)?;
            for _ in fields(descriptor, ENTRIES_FIELD) {
                size.entries += 1;
                self.check(&size)?;
            }
        }
        Ok(())
    }

    /// Checks a request in JSON.
    pub(crate) fn check_json(self, text: &[u8]) -> Result<(), RequestExcess> {
        // `{},` is the shortest descriptor.
        if text.len() / 3 <= self.descriptors {
            return Ok(());
        }
        let mut size = RequestSize::default();
        let counter = json::RequestCounter {
            bounds: self,
            size: &mut size,
            level: json::Level::Request,
        };
        // Invalid JSON is refused later; the objects before the error count here.
        let _ = counter.deserialize(&mut serde_json::Deserializer::from_slice(text));
        self.check(&size)
    }

    fn check(self, size: &RequestSize) -> Result<(), RequestExcess> {
        let entries = self.descriptors.saturating_mul(ENTRIES);
        if size.descriptors > self.descriptors {
            return Err(RequestExcess::Descriptors {
                most: self.descriptors,
            });
        }
        if size.entries > entries {
            return Err(RequestExcess::Entries { most: entries });
        }
        Ok(())
    }
}

/// Returns the length-delimited fields of a message, up to its first invalid byte.
pub(super) fn delimited_fields(mut message: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        while !message.is_empty() {
            let (field, wire_type) = decode_key(&mut message).ok()?;
            if wire_type == WireType::LengthDelimited {
                let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
                let (value, rest) = message.split_at_checked(length)?;
                message = rest;
                return Some((field, value));
            }
            skip_field(wire_type, field, &mut message, DecodeContext::default()).ok()?;
        }
        None
    })
}

/// Returns the messages in a field of a message.
fn fields(message: &[u8], wanted: u32) -> impl Iterator<Item = &[u8]> {
    delimited_fields(message).filter_map(move |(field, value)| (field == wanted).then_some(value))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;
    use crate::rls::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use crate::rls::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
    use crate::rls::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    const BOUNDS: RequestBounds = RequestBounds { descriptors: 10 };

    /// Descriptors with these numbers of entries.
    fn message(entries: &[usize]) -> RateLimitRequest {
        let descriptors = entries.iter().map(|&entries| RateLimitDescriptor {
            entries: vec![Entry::default(); entries],
            ..Default::default()
        });
        RateLimitRequest {
            domain: "d".repeat(1_000),
            descriptors: descriptors.collect(),
            hits_addend: 1,
        }
    }

    fn check(entries: &[usize], expected: Result<(), RequestExcess>) {
        let message = message(entries);
        assert_eq!(
            BOUNDS.check_protobuf(&message.encode_to_vec()),
            expected,
            "{entries:?} in protobuf"
        );
        let descriptors: Vec<_> = entries
            .iter()
            .map(|&entries| json!({"limit": {"unit": 1}, "entries": vec![json!({"key": "k"}); entries]}))
            .collect();
        let text = json!({"domain": message.domain, "descriptors": descriptors, "hitsAddend": 1})
            .to_string();
        assert_eq!(
            BOUNDS.check_json(text.as_bytes()),
            expected,
            "{entries:?} in JSON"
        );
    }

    #[test]
    fn descriptors_and_entries_are_counted() {
        check(&[1; 10], Ok(()));
        check(&[0; 11], Err(RequestExcess::Descriptors { most: 10 }));
        check(&[16; 10], Ok(()));
        check(&[160], Ok(()));
        check(&[100, 61], Err(RequestExcess::Entries { most: 160 }));
        check(&[], Ok(()));
    }

    #[test]
    fn what_cannot_be_read_counts_as_far_as_it_goes() {
        for text in [
            "{\"descriptors\":[{},{},{},{}".repeat(3),
            "[".repeat(1_000),
            "nonsense".repeat(10),
        ] {
            assert_eq!(BOUNDS.check_json(text.as_bytes()), Ok(()), "{text}");
        }
        let many = format!("{{\"d\\u0065scriptors\":[{}", "{},".repeat(11));
        assert_eq!(
            BOUNDS.check_json(many.as_bytes()),
            Err(RequestExcess::Descriptors { most: 10 })
        );

        let mut message = message(&[0; 10]).encode_to_vec();
        message.extend([0x12, 0x7f]);
        assert_eq!(
            BOUNDS.check_protobuf(&message),
            Ok(()),
            "the last descriptor is longer than the message"
        );
        message.truncate(message.len() - 2);
        // A group, an unknown field and a varint in the place of a descriptor come before one more.
        message.extend([
            0x7b, 0x10, 0x01, 0x7c, 0xfa, 0x01, 0x02, 0x12, 0x00, 0x12, 0x00,
        ]);
        assert_eq!(
            BOUNDS.check_protobuf(&message),
            Err(RequestExcess::Descriptors { most: 10 })
        );
    }

    #[test]
    fn a_message_is_never_decoded_to_more_than_was_counted() {
        // Fixed sequence of mutations, so that a failure can be repeated.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let original = RateLimitRequest {
            domain: "d".into(),
            ..message(&[1, 2, 0, 3])
        }
        .encode_to_vec();
        let mut decoded = 0;
        for _ in 0..20_000 {
            let mut bytes = original.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            let Ok(message) = RateLimitRequest::decode(&*bytes) else {
                continue;
            };
            decoded += 1;
            let descriptors: Vec<_> = fields(&bytes, DESCRIPTORS_FIELD).collect();
            let entries: usize = descriptors
                .iter()
                .map(|bytes| fields(bytes, ENTRIES_FIELD).count())
                .sum();
            assert_eq!(descriptors.len(), message.descriptors.len(), "{bytes:x?}");
            assert_eq!(
                entries,
                message
                    .descriptors
                    .iter()
                    .map(|each| each.entries.len())
                    .sum::<usize>(),
                "{bytes:x?}"
            );
        }
        assert!(decoded > 1_000, "{decoded}");
    }
}
