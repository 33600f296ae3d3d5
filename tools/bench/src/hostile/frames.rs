//! HTTP/2 as bytes: frames that no well-behaved client would send.

/// What a connection begins with: the preface and empty settings.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `:method POST`, `:scheme http`, `:path /`, as the static table of HPACK has them.
pub(super) const SHORT_HEAD: &[u8] = &[0x83, 0x86, 0x84];
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(super) enum Kind {
    Data = 0,
    Headers = 1,
    Reset = 3,
    Continuation = 9,
}

/// A frame of this kind.
pub(super) fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [
        &length[1..],
        &[kind as u8, flags],
        &stream.to_be_bytes(),
        payload,
    ]
    .concat()
}

/// The headers of ShouldRateLimit, as a whole.
pub(super) fn headers(stream: u32) -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    // Literals without indexing, with names of the static table: `:path` is 4, `content-type` 31.
    put(&mut head, &[0x04], crate::load::PATH);
    put(&mut head, &[0x0f, 0x10], "application/grpc");
    put(&mut head, b"\x00\x02te", "trailers");
    frame(Kind::Headers, END_HEADERS, stream, &head)
}

fn put(head: &mut Vec<u8>, name: &[u8], value: &str) {
    head.extend_from_slice(name);
    head.push(value.len() as u8);
    head.extend_from_slice(value.as_bytes());
}

/// The last data of a stream.
pub(super) fn end(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(Kind::Data, END_STREAM, stream, payload)
}

/// A short request, and its immediate end.
pub(super) fn reset(stream: u32) -> Vec<u8> {
    const CANCEL: [u8; 4] = 8_u32.to_be_bytes();
    [
        frame(Kind::Headers, END_HEADERS, stream, SHORT_HEAD),
        frame(Kind::Reset, 0, stream, &CANCEL),
    ]
    .concat()
}

/// A gRPC message.
pub(super) fn message(compressed: bool, message: &[u8]) -> Vec<u8> {
    [
        &[u8::from(compressed)],
        &(message.len() as u32).to_be_bytes()[..],
        message,
    ]
    .concat()
}

/// A RateLimitRequest of these descriptors, each a key and a value, not framed.
pub(super) fn request(
    domain: &str,
    descriptors: impl IntoIterator<Item = (&'static str, String)>,
    hits: u32,
) -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, 1, domain.as_bytes());
    for (key, value) in descriptors {
        let (mut entry, mut descriptor) = (Vec::new(), Vec::new());
        field(&mut entry, 1, key.as_bytes());
        field(&mut entry, 2, value.as_bytes());
        field(&mut descriptor, 1, &entry);
        field(&mut out, 2, &descriptor);
    }
    out.push(3 << 3);
    prost::encoding::encode_varint(hits.into(), &mut out);
    out
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    prost::encoding::encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_length_and_stream() {
        assert_eq!(end(3, b"ab"), b"\0\0\x02\0\x01\0\0\0\x03ab");
        assert_eq!(message(true, b"x"), b"\x01\0\0\0\x01x");
        let expected = b"\x0a\x01d\x12\x0a\x0a\x08\x0a\x03key\x12\x010\x18\x05";
        assert_eq!(request("d", [("key", "0".to_owned())], 5), expected);
    }
}
