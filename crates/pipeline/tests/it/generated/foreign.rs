//! Bytes from outside: whatever they are, they are read the same in any pieces, and as another decoder reads them.
//!
//! The fuzz targets include this file; here the same checks run on bytes that almost are what a server sends.

use redis_protocol::resp2::decode::decode as their_decode;
use redis_protocol::resp2::types::OwnedFrame;
use tidegate_pipeline::test_util::fuzzing::{covered_slots, decode, endpoint};
use tidegate_pipeline::{Address, Outcome, Protocol, Rejected, Reply, ServerError};

/// The other decoder calls itself for each level of nesting and has no limit.
const SAFE_NESTING: usize = 100;

/// The first bytes say where the rest is cut.
pub(crate) fn check_decoder(data: &[u8]) {
    let Some((cuts, bytes)) = data.split_at_checked(4) else {
        return;
    };
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let whole = decode(protocol, std::iter::once(bytes));
        let size = usize::from(cuts[0]) + 1;
        assert_eq!(
            decode(protocol, bytes.chunks(size)),
            whole,
            "in pieces of {size}"
        );
        let at = usize::from(u16::from_le_bytes([cuts[1], cuts[2]])).min(bytes.len());
        let (first, second) = bytes.split_at(at);
        assert_eq!(
            decode(protocol, [first, second].into_iter()),
            whole,
            "cut at {at}"
        );
    }
    if bytes.iter().filter(|&&byte| byte == b'*').count() < SAFE_NESTING {
        compare(bytes);
    }
}

/// What both decoders take for a reply must be the same reply of the same length.
fn compare(mut bytes: &[u8]) {
    let (ours, _) = decode(Protocol::Resp2, std::iter::once(bytes));
    for outcome in ours {
        let Ok(Some((theirs, length))) = their_decode(bytes) else {
            return;
        };
        let ours = match &outcome {
            Outcome::Reply(reply) => Ok(reply),
            Outcome::ServerError(ServerError { message })
            | Outcome::Rejected(Rejected { message, .. }) => Err(&**message),
            other => panic!("bytes cannot say {other:?}"),
        };
        assert!(same(ours, &theirs), "{ours:?} and {theirs:?}");
        bytes = &bytes[length..];
    }
}

fn same(ours: Result<&Reply, &str>, theirs: &OwnedFrame) -> bool {
    match (ours, theirs) {
        (Ok(Reply::Null), OwnedFrame::Null) => true,
        (Ok(Reply::Integer(ours)), OwnedFrame::Integer(theirs)) => ours == theirs,
        (Ok(Reply::Simple(ours)), OwnedFrame::SimpleString(theirs))
        | (Ok(Reply::Bulk(ours)), OwnedFrame::BulkString(theirs)) => ours == theirs,
        (Ok(Reply::Array(ours)), OwnedFrame::Array(theirs)) => {
            let element = |(ours, theirs): (&Result<Reply, ServerError>, &OwnedFrame)| {
                same(ours.as_ref().map_err(|error| &*error.message), theirs)
            };
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(element)
        }
        (Err(ours), OwnedFrame::Error(theirs)) => ours == theirs.as_str(),
        _ => false,
    }
}

fn asked() -> Address {
    Address::Tcp {
        host: "asked".to_owned(),
        port: 1,
    }
}

/// Any reply to CLUSTER SLOTS is read or refused, and never names more slots than it has rows for.
pub(crate) fn check_slots(data: &[u8]) {
    let (outcomes, _) = decode(Protocol::Resp2, std::iter::once(data));
    for outcome in outcomes {
        let Outcome::Reply(reply) = outcome else {
            continue;
        };
        let Reply::Array(rows) = &reply else {
            assert_eq!(covered_slots(&reply, &asked()), None);
            continue;
        };
        assert!(covered_slots(&reply, &asked()).unwrap_or(0) <= rows.len() * 16_384);
    }
}

/// An endpoint that is understood is understood again as it is printed.
pub(crate) fn check_endpoint(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Some(address) = endpoint(text, &asked()) else {
        return;
    };
    let Address::Tcp { host, port } = &address else {
        panic!("{text:?} became {address:?}")
    };
    assert!(*port > 0 && !host.is_empty(), "{text:?}");
    assert_eq!(
        endpoint(&address.to_string(), &asked()).as_ref(),
        Some(&address),
        "{text:?}"
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::generated::mutation::fuzz;

    /// What servers send: every type of both protocols, errors that say "not run", and lists of slots. The first four bytes
    /// say where the rest is cut.
    const CORPUS: &[&[u8]] = &[
        b"\x00\x03\x00\x00:42\r\n:-9223372036854775808\r\n:999999999999999999\r\n+OK\r\n",
        b"\x02\x01\x00\x00+OK\r\n+QUEUED\r\n$5\r\nhe\r\no\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n",
        b"\x04\x07\x00\x00-ERR no\r\n-LOADING Redis is loading\r\n-MOVED 3999 127.0.0.1:6381\r\n-ASK 1 :1\r\n",
        b"\x06\x09\x00\x00*2\r\n$-1\r\n*3\r\n:7\r\n+a\r\n-TRYAGAIN\r\n$2\r\nab\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        b"\x01\x0b\x00\x00_\r\n#t\r\n,1.5\r\n(123456789012345678901234567890\r\n=8\r\ntxt:some\r\n!5\r\nERR x\r\n",
        b"\x08\x0d\x00\x00%1\r\n+a\r\n:1\r\n~2\r\n:1\r\n$1\r\nx\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n:7\r\n",
        b"\x0f\x20\x00\x00*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$1\r\nh\r\n:1\r\n*3\r\n:8192\r\n:16383\r\n*2\r\n$1\r\ni\r\n:2\r\n",
        b"\x10\x10\x00\x00*1000000\r\n:1\r\n$1000000\r\nab",
    ];

    #[test]
    fn mutated_replies_are_read_alike_in_any_pieces_and_by_another_decoder() {
        fuzz(CORPUS, 20_000, check_decoder);
    }

    #[test]
    fn mutated_lists_of_slots_are_read_or_refused() {
        fuzz(CORPUS, 20_000, |data| {
            check_slots(data.get(4..).unwrap_or_default())
        });
    }

    #[test]
    fn mutated_endpoints_read_back_as_printed() {
        let corpus: [&[u8]; 6] = [
            b"10.0.0.7:6379",
            b"redis-0.local:6379",
            b"2001:db8::1:6379",
            b"[::1]:6379",
            b":6379",
            b"?:6379",
        ];
        fuzz(&corpus, 20_000, check_endpoint);
    }

    /// A frame as servers send it, to a depth of four.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let text = proptest::collection::vec(any::<u8>(), 0..12);
        let line = "[ -~]{0,12}";
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            line.prop_map(|text| format!("+{text}\r\n").into_bytes()),
            line.prop_map(|text| format!("-{text}\r\n").into_bytes()),
            text.prop_map(
                |text| [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()
            ),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            (
                0..20_000_i64,
                0..20_000_i64,
                "[a-z?:.]{0,6}",
                -5..70_000_i64
            )
                .prop_map(|(first, last, host, port)| {
                    let size = host.len();
                    format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n${size}\r\n{host}\r\n:{port}\r\n")
                        .into_bytes()
                }),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            proptest::collection::vec(inner, 0..5).prop_map(|frames| {
                [
                    format!("*{}\r\n", frames.len()).into_bytes(),
                    frames.concat(),
                ]
                .concat()
            })
        })
    }

    /// Frames with a few bytes changed, as a peer that is none might send them.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let spoilt = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
        (
            proptest::collection::vec(frame(), 1..6),
            spoilt,
            any::<[u8; 4]>(),
        )
            .prop_map(|(frames, spoilt, cuts)| {
                let mut bytes = frames.concat();
                for (at, byte) in spoilt {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
                [&cuts[..], &bytes].concat()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn replies_are_read_alike_in_any_pieces_and_by_another_decoder(data in nearly()) {
            check_decoder(&data);
        }

        #[test]
        fn a_list_of_slots_is_read_or_refused(data in nearly()) {
            check_slots(&data[4..]);
        }

        #[test]
        fn an_endpoint_reads_back_as_printed(text in "([a-z.]{0,9}|[0-9a-f:]{0,12}|\\[[0-9a-f:]{0,12}\\]|\\PC{0,6}):[0-9]{0,6}") {
            check_endpoint(text.as_bytes());
        }
    }
}
