//! The protobuf codec of the stream. It counts the objects in a response before it is decoded,
//! because 4 MiB can become 2,000,000 objects.

use std::time::Instant;

use prost::Message as _;
use prost::bytes::Buf as _;
use thiserror::Error;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use super::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use crate::net::dial::OverheadBytes;
use crate::rls::bounds::delimited_fields;

/// Maximum of objects in a response: resources, descriptors, limits, and values in metadata. About
/// 200,000 descriptors with a limit; each takes some 200 bytes while it is loaded.
const MAX_OBJECTS: usize = 500_000;
/// Maximum of message nesting that is counted, more than the decoder accepts.
const MAX_DEPTH: usize = 110;
/// `nonce` of `DiscoveryResponse`.
const NONCE_FIELD: u32 = 5;

/// A response has too many objects.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the response has more than {MAX_OBJECTS} resources, descriptors, limits and values of metadata together: send fewer"
)]
pub(super) struct ResponseExcess {
    /// The nonce that the answer to this response must have.
    pub(super) nonce: String,
}

/// A response that was received.
#[derive(Debug)]
pub(super) struct Received {
    /// The time at which it was complete, and its decoding began.
    pub(super) received_at: Instant,
    /// The response, unless it was not decoded because it has too many objects.
    pub(super) response: Result<DiscoveryResponse, ResponseExcess>,
}

/// Encodes requests, and decodes responses within the bound.
#[derive(Debug, Clone)]
pub(super) struct ResponseCodec {
    /// Overhead of the connection.
    pub(super) overhead: OverheadBytes,
}

impl Codec for ResponseCodec {
    type Encode = DiscoveryRequest;
    type Decode = Received;
    type Encoder = ProstEncoder<DiscoveryRequest>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default().encoder()
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Decoder for ResponseCodec {
    type Item = Received;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Received>, Status> {
        let received_at = Instant::now();
        self.overhead.subtract_message(message.remaining());
        // One buffer holds the whole message.
        if !MessageKind::Response.fits(message.chunk(), &mut MAX_OBJECTS.clone(), MAX_DEPTH) {
            let nonce = nonce(message.chunk());
            message.advance(message.remaining());
            return Ok(Some(Received {
                received_at,
                response: Err(ResponseExcess { nonce }),
            }));
        }
        let response = DiscoveryResponse::decode(message)
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(Received {
            received_at,
            response: Ok(response),
        }))
    }
}

/// The messages that contain others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Response,
    Any,
    Config,
    Descriptor,
    Limit,
    Struct,
    Pair,
    Value,
    List,
    /// A message without messages in it.
    Leaf,
}

impl MessageKind {
    /// Returns the kind of the message in a field. `None` if the field is no message.
    fn field_kind(self, field: u32) -> Option<Self> {
        Some(match (self, field) {
            (Self::Response, 2) => Self::Any,
            (Self::Any, 2) => Self::Config,
            (Self::Config, 3) | (Self::Descriptor, 4) => Self::Descriptor,
            (Self::Descriptor, 3) => Self::Limit,
            (Self::Limit, 5) => Self::Leaf,
            (Self::Descriptor, 8) | (Self::Value, 5) => Self::Struct,
            (Self::Struct, 1) => Self::Pair,
            (Self::Pair, 2) | (Self::List, 1) => Self::Value,
            (Self::Value, 6) => Self::List,
            _ => return None,
        })
    }

    /// Whether a message of this kind contains at most `left` messages, which are subtracted from
    /// `left`. Invalid protobuf is left to the decoder, which stops at the same byte.
    fn fits(self, message: &[u8], remaining: &mut usize, depth: usize) -> bool {
        if depth == 0 {
            return true;
        }
        delimited_fields(message)
            .filter_map(|(field, value)| Some((self.field_kind(field)?, value)))
            .all(|(kind, value)| {
                *remaining > 0 && {
                    *remaining -= 1;
                    kind.fits(value, remaining, depth - 1)
                }
            })
    }
}

fn nonce(response: &[u8]) -> String {
    let found = delimited_fields(response)
        .filter(|(field, _)| *field == NONCE_FIELD)
        .last();
    found
        .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use prost::encoding::WireType;
    use prost_types::{Any, ListValue, Struct, Value, value::Kind as Content};

    use super::*;
    use crate::rls::reload::xds::proto::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace,
    };

    fn response(configs: &[RateLimitConfig]) -> Vec<u8> {
        let any = |config: &RateLimitConfig| Any {
            value: config.encode_to_vec(),
            ..Any::default()
        };
        let resources = configs.iter().map(any).collect();
        DiscoveryResponse {
            resources,
            nonce: "n".into(),
            version_info: "v".into(),
            ..Default::default()
        }
        .encode_to_vec()
    }

    #[track_caller]
    fn check(configs: &[RateLimitConfig], objects: usize) {
        let bytes = response(configs);
        assert!(
            MessageKind::Response.fits(&bytes, &mut { objects }, MAX_DEPTH),
            "there are at most {objects}"
        );
        assert!(
            !MessageKind::Response.fits(&bytes, &mut { objects - 1 }, MAX_DEPTH),
            "there are at least {objects}"
        );
        assert_eq!(nonce(&bytes), "n");
    }

    #[test]
    fn every_message_of_a_response_is_counted() {
        let config = |descriptors| RateLimitConfig {
            descriptors,
            ..RateLimitConfig::default()
        };
        // The resource, and the configuration in it.
        check(&[config(vec![])], 1);
        check(
            &[RateLimitConfig {
                name: "r".into(),
                ..config(vec![])
            }],
            2,
        );
        let descriptor = RateLimitDescriptor {
            key: "k".into(),
            ..RateLimitDescriptor::default()
        };
        check(&[config(vec![descriptor.clone(); 10])], 12);
        let below = RateLimitDescriptor {
            descriptors: vec![descriptor.clone(); 3],
            ..descriptor.clone()
        };
        check(
            &[config(vec![below.clone(); 2]), config(vec![below])],
            2 + 2 * 4 + 2 + 4,
        );
        let replaces = vec![RateLimitReplace::default(); 5];
        let limit = RateLimitPolicy {
            replaces,
            ..RateLimitPolicy::default()
        };
        let limited = RateLimitDescriptor {
            rate_limit: Some(limit),
            ..descriptor.clone()
        };
        check(&[config(vec![limited])], 2 + 1 + 1 + 5);
        let number = Value {
            kind: Some(Content::NumberValue(1.0)),
        };
        let list = Value {
            kind: Some(Content::ListValue(ListValue {
                values: vec![number; 4],
            })),
        };
        let metadata = Struct {
            fields: [("a".to_owned(), list)].into(),
        };
        let described = RateLimitDescriptor {
            metadata: Some(metadata),
            ..descriptor
        };
        check(&[config(vec![described])], 2 + 1 + 1 + 1 + 1 + 1 + 4);
    }

    #[test]
    fn what_is_no_protobuf_is_left_to_the_decoder() {
        for bytes in [
            &b"nonsense"[..],
            &[0x12, 0x7f],
            &[0x12, 0x02, 0x12, 0xff],
            &[0xff; 40],
            &[],
        ] {
            assert!(
                MessageKind::Response.fits(bytes, &mut 100, MAX_DEPTH),
                "{bytes:x?}"
            );
        }
    }

    /// The stack is bounded, and the decoder takes fewer.
    #[test]
    fn messages_deep_inside_each_other_are_no_danger() {
        let nested = |depth: usize| {
            let mut bytes = Vec::new();
            for _ in 0..depth {
                let mut outer = Vec::new();
                prost::encoding::encode_key(4, WireType::LengthDelimited, &mut outer);
                prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
                outer.append(&mut bytes);
                bytes = outer;
            }
            bytes
        };
        for (depth, decoded) in [(95, true), (105, false), (5_000, false)] {
            assert!(MessageKind::Descriptor.fits(
                &nested(depth),
                &mut MAX_OBJECTS.clone(),
                MAX_DEPTH
            ));
            assert_eq!(
                RateLimitDescriptor::decode(&*nested(depth)).is_ok(),
                decoded,
                "{depth} levels"
            );
        }
    }
}
