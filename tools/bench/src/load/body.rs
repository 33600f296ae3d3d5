//! The request body: one gRPC frame with an encoded RateLimitRequest, patched in place for each
//! call.
//!
//! Encoding each request would cost more than the rest of a call. All keys have the same number of
//! digits, so requests for different keys differ only in these digits.

use anyhow::{Context as _, Result, ensure};
use bytes::{Bytes, BytesMut};
use clap::Args;
use prost::encoding;

use super::KeyStream;

/// Digits of a key in a descriptor value; u32 has at most ten.
const KEY_DIGITS: usize = 10;
const FRAME_HEADER_BYTES: usize = 5;
/// Bytes of one allocation: some thousand bodies.
const ARENA_BYTES: usize = 256 * 1024;

/// The form of a request.
#[derive(Args, Clone)]
pub(crate) struct Shape {
    #[arg(long, default_value = "bench")]
    pub(crate) domain: String,
    /// Entry key of every descriptor; the value is the descriptor's position and the drawn key.
    #[arg(long, default_value = "key")]
    pub(crate) key: String,
    /// Descriptors of each request.
    #[arg(long, default_value_t = 1)]
    pub(crate) descriptors: u16,
    /// `hits_addend` of the request; 0 leaves it out, which servers count as one hit.
    #[arg(long, default_value_t = 0)]
    pub(crate) hits: u32,
}

impl Shape {
    /// Creates the form of requests for the domain of measured servers.
    pub(crate) fn new(key: &str, descriptors: u16) -> Self {
        Self {
            domain: "bench".to_owned(),
            key: key.to_owned(),
            descriptors,
            hits: 0,
        }
    }
}

/// Makes bodies of one [`Shape`].
pub(crate) struct BodyFactory {
    template: Vec<u8>,
    /// Offsets of the digits of each descriptor.
    digits: Vec<usize>,
    arena: BytesMut,
}

impl BodyFactory {
    /// Fails if the message does not fit a gRPC frame.
    pub(crate) fn new(shape: &Shape) -> Result<Self> {
        ensure!(
            shape.descriptors > 0,
            "a request needs at least one descriptor"
        );
        // A gRPC frame: not compressed, length, message.
        let mut template = vec![0; FRAME_HEADER_BYTES];
        encoding::string::encode(1, &shape.domain, &mut template);
        let mut digits = Vec::new();
        for position in 0..shape.descriptors {
            encoding::bytes::encode(2, &descriptor(&shape.key, position), &mut template);
            digits.push(template.len() - KEY_DIGITS);
        }
        if shape.hits > 0 {
            encoding::uint32::encode(3, &shape.hits, &mut template);
        }
        let length = u32::try_from(template.len() - FRAME_HEADER_BYTES)
            .context("the request does not fit a gRPC frame")?;
        template[1..FRAME_HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
        Ok(Self {
            template,
            digits,
            arena: BytesMut::new(),
        })
    }

    /// Returns the body of the next request. Each descriptor draws a separate key.
    pub(crate) fn next(&mut self, keys: &mut KeyStream) -> Bytes {
        for start in &self.digits {
            let mut rest = keys.draw();
            for digit in self.template[*start..*start + KEY_DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        if self.arena.capacity() < self.template.len() {
            self.arena.reserve(ARENA_BYTES.max(self.template.len()));
        }
        self.arena.extend_from_slice(&self.template);
        self.arena.split().freeze()
    }
}

/// Returns a body with the first key.
pub(crate) fn one_body(shape: &Shape) -> Result<Bytes> {
    let mut keys = KeyStream::sequence(1);
    Ok(BodyFactory::new(shape)?.next(&mut keys))
}

/// Returns an encoded descriptor, which ends with the digits of its key.
fn descriptor(key: &String, position: u16) -> Vec<u8> {
    let value = format!("{position:03}-{:0KEY_DIGITS$}", 0);
    let mut entry = Vec::new();
    encoding::string::encode(1, key, &mut entry);
    encoding::string::encode(2, &value, &mut entry);
    let mut descriptor = Vec::new();
    encoding::bytes::encode(1, &entry, &mut descriptor);
    descriptor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(descriptors: u16, hits: u32) -> Vec<Bytes> {
        let shape = Shape {
            domain: "d".into(),
            key: "k".into(),
            descriptors,
            hits,
        };
        let mut keys = KeyStream::sequence(12);
        let mut bodies = BodyFactory::new(&shape).unwrap();
        (0..3).map(|_| bodies.next(&mut keys)).collect()
    }

    #[test]
    fn a_body_is_a_framed_request() {
        let body = &bodies(1, 5)[1];
        let expected =
            b"\0\0\0\0\x1c\x0a\x01d\x12\x15\x0a\x13\x0a\x01k\x12\x0e000-0000000001\x18\x05";
        assert_eq!(body, &expected[..]);
    }

    #[test]
    fn each_descriptor_draws_its_own_key() {
        let text = String::from_utf8_lossy(&bodies(5, 0)[2]).into_owned();
        for value in [
            "000-0000000010",
            "001-0000000011",
            "002-0000000000",
            "004-0000000002",
        ] {
            assert!(text.contains(value), "{value} is not in {text:?}");
        }
    }

    #[test]
    fn no_hits_leaves_the_field_out() {
        assert!(bodies(1, 0)[0].ends_with(b"0000000000"));
    }
}
