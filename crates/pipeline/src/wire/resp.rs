//! Decodes replies with the RESP library. No other file uses the library.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use resp_rs::resp2::{self, Frame};
use resp_rs::{ParseError, resp3};

use super::{Protocol, Reply, Scan, ServerError};

/// The answer to one command.
pub(crate) type Answer = Result<Reply, ServerError>;

/// Decodes the replies of one connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    protocol: Protocol,
    /// State of the incomplete frame at the front of the buffer.
    scan: Scan,
}

impl Decoder {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            scan: Scan::default(),
        }
    }

    /// Removes the complete frames from the front of `buffer` and passes each to `on_answer`. The
    /// rest must be at the front of the buffer at the next call.
    ///
    /// The library bounds nesting at 128, lines at 64 KiB, arrays at ten million elements and bulk
    /// strings at 512 MiB, and allocates only for bytes that arrived.
    ///
    /// # Errors
    /// The error of `on_answer`: later frames stay in the buffer. Or the first malformed frame, as
    /// text: the position in the stream is lost then, and the connection must be closed.
    pub(crate) fn decode<E: From<String>>(
        &mut self,
        buffer: &mut BytesMut,
        mut on_answer: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<(), E> {
        let (decoded, plain) = decode_plain(buffer, &mut on_answer);
        if decoded > 0 {
            self.scan = Scan::Fresh;
        }
        if decoded == buffer.len() || plain.is_err() {
            buffer.advance(decoded);
            return plain;
        }
        if !self.scan.may_be_complete(self.protocol, &buffer[decoded..]) {
            buffer.advance(decoded);
            return Ok(());
        }
        // The library reads from `Bytes`. Converting the buffer and back costs no copy while no
        // reply points into it.
        let whole = std::mem::take(buffer).freeze();
        let mut rest = whole.slice(decoded..);
        let result = self.decode_frames(&mut rest, &mut on_answer);
        let consumed = whole.len() - rest.len();
        drop(rest);
        *buffer = after(whole, consumed);
        result
    }

    /// Decodes frames of any kind from the front of `rest`, until it is empty or the last frame is
    /// incomplete.
    fn decode_frames<E: From<String>>(
        &mut self,
        rest: &mut Bytes,
        on_answer: &mut impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let (decoded, plain) = decode_plain(rest, on_answer);
            rest.advance(decoded);
            plain?;
            if rest.is_empty() {
                return Ok(());
            }
            let parsed = match self.protocol {
                Protocol::Resp2 => resp2::parse_frame(rest.clone())
                    .map(|(frame, after)| (Some(reply(frame)), after)),
                Protocol::Resp3 => {
                    resp3::parse_frame(rest.clone()).map(|(frame, after)| (reply3(frame), after))
                }
            };
            let (reply, after) = match parsed {
                Ok(parsed) => parsed,
                Err(ParseError::Incomplete) => {
                    self.scan.incomplete(rest);
                    return Ok(());
                }
                Err(error) => return Err(format!("malformed reply: {error}").into()),
            };
            self.scan = Scan::Fresh;
            *rest = after;
            if let Some(reply) = reply {
                on_answer(reply)?;
            }
        }
    }
}

/// Returns the buffer without the bytes that were decoded.
fn after(whole: Bytes, decoded: usize) -> BytesMut {
    match whole.try_into_mut() {
        Ok(mut buffer) => {
            buffer.advance(decoded);
            buffer
        }
        Err(shared) => BytesMut::from(&shared[decoded..]),
    }
}

/// Decodes the plain replies at the front, and returns their length in bytes.
///
/// Counters have only plain replies, and through the library these would cost a tenth of a call.
fn decode_plain<E>(
    bytes: &[u8],
    on_answer: &mut impl FnMut(Answer) -> Result<(), E>,
) -> (usize, Result<(), E>) {
    let mut decoded = 0;
    while let Some((reply, length)) = plain(&bytes[decoded..]) {
        decoded += length;
        if let Err(error) = on_answer(Ok(reply)) {
            return (decoded, Err(error));
        }
    }
    (decoded, Ok(()))
}

/// Decodes an integer of up to 18 digits, or OK, at the front, and returns its length. All else is
/// left to the library.
fn plain(bytes: &[u8]) -> Option<(Reply, usize)> {
    const OK: &[u8] = b"+OK\r\n";
    const DIGITS: usize = 18;
    let Some(digits) = bytes.strip_prefix(b":") else {
        return bytes
            .starts_with(OK)
            .then_some((Reply::Simple(Bytes::from_static(b"OK")), OK.len()));
    };
    let mut value = 0;
    for (at, byte) in digits.iter().enumerate().take(DIGITS + 1) {
        match byte {
            b'0'..=b'9' if at < DIGITS => value = value * 10 + i64::from(byte - b'0'),
            b'\r' if at > 0 && digits.get(at + 1) == Some(&b'\n') => {
                return Some((Reply::Integer(value), at + 3));
            }
            _ => return None,
        }
    }
    None
}

fn reply(frame: Frame) -> Answer {
    Ok(match frame {
        Frame::Integer(value) => Reply::Integer(value),
        Frame::SimpleString(bytes) => Reply::Simple(bytes),
        Frame::BulkString(Some(bytes)) => Reply::Bulk(bytes),
        Frame::BulkString(None) | Frame::Array(None) => Reply::Null,
        Frame::Array(Some(frames)) => Reply::Array(frames.into_iter().map(reply).collect()),
        Frame::Error(bytes) => return Err(server_error(&bytes)),
    })
}

fn server_error(message: &[u8]) -> ServerError {
    ServerError {
        message: Arc::from(String::from_utf8_lossy(message)),
    }
}

/// Converts a reply of RESP3 to the types of RESP2. `None` for a frame that is not the reply to a
/// command.
fn reply3(frame: resp3::Frame) -> Option<Answer> {
    use resp3::Frame;
    let array = |frames: Vec<Frame>| Reply::Array(frames.into_iter().filter_map(reply3).collect());
    Some(Ok(match frame {
        Frame::Integer(value) => Reply::Integer(value),
        Frame::Boolean(value) => Reply::Integer(i64::from(value)),
        Frame::SimpleString(bytes) => Reply::Simple(bytes),
        Frame::BulkString(Some(bytes)) | Frame::BigNumber(bytes) | Frame::SpecialFloat(bytes) => {
            Reply::Bulk(bytes)
        }
        // The first four bytes name the format.
        Frame::VerbatimString { payload } => Reply::Bulk(payload.slice(payload.len().min(4)..)),
        Frame::Double(value) => Reply::Bulk(value.to_string().into()),
        Frame::Null | Frame::BulkString(None) | Frame::Array(None) => Reply::Null,
        Frame::Array(Some(frames)) | Frame::Set(frames) => array(frames),
        Frame::Map(pairs) => array(
            pairs
                .into_iter()
                .flat_map(|(key, value)| [key, value])
                .collect(),
        ),
        Frame::Error(bytes) | Frame::BlobError(bytes) => return Some(Err(server_error(&bytes))),
        // A push is not a reply to a command, an attribute only describes the next frame, and no
        // server sends streamed types.
        _ => return None,
    }))
}

/// A frame on a subscribed connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// The elements of a push. RESP2 has no push type: every array on a subscribed connection is
    /// one.
    Push(Vec<Answer>),
    /// The answer to a command.
    Answer(Answer),
}

/// Decodes the complete frames of a subscribed connection.
pub(crate) fn decode_incoming(
    protocol: Protocol,
    buffer: &mut BytesMut,
) -> Result<Vec<Incoming>, String> {
    let whole = std::mem::take(buffer).freeze();
    let mut rest = whole.clone();
    let mut all = Vec::new();
    while !rest.is_empty() {
        let parsed = match protocol {
            Protocol::Resp2 => resp2::parse_frame(rest.clone())
                .map(|(frame, after)| (Some(incoming2(frame)), after)),
            Protocol::Resp3 => {
                resp3::parse_frame(rest.clone()).map(|(frame, after)| (incoming3(frame), after))
            }
        };
        match parsed {
            Ok((incoming, after)) => {
                all.extend(incoming);
                rest = after;
            }
            Err(ParseError::Incomplete) => break,
            Err(error) => return Err(format!("malformed message: {error}")),
        }
    }
    let consumed = whole.len() - rest.len();
    drop(rest);
    *buffer = after(whole, consumed);
    Ok(all)
}

fn incoming2(frame: Frame) -> Incoming {
    match frame {
        Frame::Array(Some(fields)) => Incoming::Push(fields.into_iter().map(reply).collect()),
        frame => Incoming::Answer(reply(frame)),
    }
}

fn incoming3(frame: resp3::Frame) -> Option<Incoming> {
    match frame {
        resp3::Frame::Push(fields) => Some(Incoming::Push(
            fields.into_iter().filter_map(reply3).collect(),
        )),
        frame => reply3(frame).map(Incoming::Answer),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn decode_all(buffer: &mut BytesMut) -> Result<Vec<Answer>, String> {
        decode_more(&mut Decoder::new(Protocol::Resp2), buffer)
    }

    fn decode_more(decoder: &mut Decoder, buffer: &mut BytesMut) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        decoder.decode(buffer, |answer| {
            answers.push(answer);
            Ok::<(), String>(())
        })?;
        Ok(answers)
    }

    fn check(wire: &str, expected: Answer) {
        let mut buffer = BytesMut::from(wire);
        assert_eq!(decode_all(&mut buffer).unwrap(), [expected], "{wire:?}");
        assert!(buffer.is_empty());
    }

    fn server_error(message: &str) -> ServerError {
        ServerError {
            message: message.into(),
        }
    }

    #[test]
    fn each_type_of_reply_is_read() {
        check(":42\r\n", Ok(Reply::Integer(42)));
        check(":-9223372036854775808\r\n", Ok(Reply::Integer(i64::MIN)));
        check(
            ":999999999999999999\r\n",
            Ok(Reply::Integer(999_999_999_999_999_999)),
        );
        check(":9223372036854775807\r\n", Ok(Reply::Integer(i64::MAX)));
        check(":-1\r\n", Ok(Reply::Integer(-1)));
        check("+OK\r\n", Ok(Reply::Simple("OK".into())));
        check("+OKAY\r\n", Ok(Reply::Simple("OKAY".into())));
        check("$3\r\na\r\n\r\n", Ok(Reply::Bulk("a\r\n".into())));
        check("$-1\r\n", Ok(Reply::Null));
        check("*-1\r\n", Ok(Reply::Null));
        check(
            "*2\r\n:1\r\n-MOVED 1 a:1\r\n",
            Ok(Reply::Array(vec![
                Ok(Reply::Integer(1)),
                Err(server_error("MOVED 1 a:1")),
            ])),
        );
    }

    #[test]
    fn resp3_is_converted_to_the_types_of_resp2() {
        let check = |wire: &str, expected: &[Answer]| {
            let mut answers = Vec::new();
            let mut buffer = BytesMut::from(wire);
            let take = |answer| {
                answers.push(answer);
                Ok::<(), String>(())
            };
            Decoder::new(Protocol::Resp3)
                .decode(&mut buffer, take)
                .unwrap();
            assert_eq!(answers, expected, "{wire:?}");
        };
        let one = |reply: Reply| [Ok(reply)];
        let bulk = |text: &str| Reply::Bulk(text.to_owned().into());
        check(":42\r\n", &one(Reply::Integer(42)));
        check("_\r\n", &one(Reply::Null));
        check("#t\r\n", &one(Reply::Integer(1)));
        check("=8\r\ntxt:some\r\n", &one(bulk("some")));
        check(",1.5\r\n", &one(bulk("1.5")));
        check(
            "(123456789012345678901234567890\r\n",
            &one(bulk("123456789012345678901234567890")),
        );
        check(
            "%1\r\n+a\r\n:1\r\n",
            &one(Reply::Array(vec![
                Ok(Reply::Simple("a".into())),
                Ok(Reply::Integer(1)),
            ])),
        );
        check("~1\r\n$1\r\nx\r\n", &one(Reply::Array(vec![Ok(bulk("x"))])));
        check(
            ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n:7\r\n",
            &one(Reply::Integer(7)),
        );
        check("-WRONGTYPE no\r\n", &[Err(server_error("WRONGTYPE no"))]);
    }

    #[test]
    fn pushes_and_answers_are_told_apart_however_they_arrive() {
        let bulk = |text: &str| Ok(Reply::Bulk(text.to_owned().into()));
        let push = || Incoming::Push(vec![bulk("message"), bulk("c"), bulk("p")]);
        for (protocol, tag) in [(Protocol::Resp2, '*'), (Protocol::Resp3, '>')] {
            let message = format!("{tag}3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\np\r\n");
            let wire = format!("{message}+PONG\r\n-NOPERM no\r\n{message}");
            let pong = Incoming::Answer(Ok(Reply::Simple("PONG".into())));
            let expected = [
                push(),
                pong,
                Incoming::Answer(Err(server_error("NOPERM no"))),
                push(),
            ];
            for cut in 0..wire.len() {
                let mut buffer = BytesMut::from(&wire[..cut]);
                let mut all = decode_incoming(protocol, &mut buffer).unwrap();
                buffer.extend_from_slice(&wire.as_bytes()[cut..]);
                all.extend(decode_incoming(protocol, &mut buffer).unwrap());
                assert_eq!(all, expected, "{protocol:?}, cut at {cut}");
                assert!(buffer.is_empty());
            }
        }
        assert!(decode_incoming(Protocol::Resp3, &mut BytesMut::from("?\r\n")).is_err());
    }

    #[test]
    fn what_is_not_taken_stays_in_the_buffer() {
        for (wire, expected) in [
            (":1\r\n:2\r\n:3\r\n", ":3\r\n"),
            ("$1\r\na\r\n+b\r\n*0\r\n", "*0\r\n"),
        ] {
            let mut buffer = BytesMut::from(wire);
            let mut left = 2;
            let take = |_| {
                left -= 1;
                if left == 0 {
                    Err("enough".to_owned())
                } else {
                    Ok(())
                }
            };
            assert_eq!(
                Decoder::new(Protocol::Resp2).decode(&mut buffer, take),
                Err("enough".to_owned())
            );
            assert_eq!(buffer, expected);
        }
    }

    #[test]
    fn a_malformed_stream_is_an_error() {
        for wire in [
            "!",
            "?\r\n",
            ":x\r\n",
            ":1x\r\n",
            ":9223372036854775808\r\n",
            "$-2\r\n",
            "*1\r\n;",
            ":1\n\r\n",
            "$1\r\nab\r\n",
        ] {
            assert!(decode_all(&mut BytesMut::from(wire)).is_err(), "{wire:?}");
        }
        let nested = "*1\r\n".repeat(100_000);
        assert!(decode_all(&mut BytesMut::from(nested.as_str())).is_err());
    }

    #[test]
    fn a_large_count_allocates_nothing_ahead() {
        let mut buffer = BytesMut::from("*1000000\r\n");
        assert_eq!(decode_all(&mut buffer).unwrap(), []);
        assert_eq!(&buffer[..], b"*1000000\r\n");
        assert!(decode_all(&mut BytesMut::from("*1000000000\r\n")).is_err());
    }

    #[test]
    fn a_large_array_in_small_pieces_is_read_in_linear_time() {
        let wire = format!("*100000\r\n{}", "$1\r\nx\r\n".repeat(100_000));
        let mut decoder = Decoder::new(Protocol::Resp2);
        let mut buffer = BytesMut::new();
        let started = Instant::now();
        let mut answers = Vec::new();
        for piece in wire.as_bytes().chunks(64) {
            buffer.extend_from_slice(piece);
            answers.extend(decode_more(&mut decoder, &mut buffer).unwrap());
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "after {} pieces' bytes",
                buffer.len()
            );
        }
        let [Ok(Reply::Array(elements))] = &answers[..] else {
            panic!("{} answers", answers.len())
        };
        assert_eq!(elements.len(), 100_000);
    }

    proptest! {
        #[test]
        fn replies_do_not_depend_on_how_bytes_arrive(cuts in proptest::collection::vec(0_usize..72, 0..12)) {
            let wire: &[u8] = b":1\r\n+OK\r\n$5\r\nhe\r\no\r\n-ERR no\r\n*2\r\n$-1\r\n*1\r\n:7\r\n$0\r\n\r\n:99\r\n-LOADING\r\n";
            let whole = decode_all(&mut BytesMut::from(wire)).unwrap();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(wire.len())).collect();
            cuts.extend([0, wire.len()]);
            cuts.sort_unstable();
            let mut decoder = Decoder::new(Protocol::Resp2);
            let mut buffer = BytesMut::new();
            let mut pieces = Vec::new();
            for pair in cuts.windows(2) {
                buffer.extend_from_slice(&wire[pair[0]..pair[1]]);
                pieces.extend(decode_more(&mut decoder, &mut buffer).unwrap());
            }
            prop_assert_eq!(whole, pieces);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_all(&mut BytesMut::from(&bytes[..]));
        }
    }
}
