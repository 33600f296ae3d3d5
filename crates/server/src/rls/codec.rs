//! The protobuf codec of calls. It checks the bounds of a request before it is decoded.

use prost::Message as _;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use super::bounds::{Bounds, Excess};
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// The initial size of a message buffer, and the bytes of an answer that are sent at once. Nearly
/// all messages are smaller, and calls that wait for theirs hold little.
fn buffers() -> BufferSettings {
    BufferSettings::new(1_024, 32 * 1024)
}

/// Decodes requests within bounds, and encodes responses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BoundedCodec(pub(crate) Bounds);

/// A request, unless it was not decoded because of its size.
pub(crate) type Decoded = Result<RateLimitRequest, Excess>;

impl Codec for BoundedCodec {
    type Encode = RateLimitResponse;
    type Decode = Decoded;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(buffers())
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Decoder for BoundedCodec {
    type Item = Decoded;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Decoded>, Status> {
        if let Err(excess) = self.0.check_protobuf(message.chunk()) {
            message.advance(message.remaining());
            return Ok(Some(Err(excess)));
        }
        let request = RateLimitRequest::decode(message)
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(Ok(request)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}
