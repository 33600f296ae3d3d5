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
    let Some((cuts, bytes)) = data.split_at_checked(4) else { return };
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let whole = decode(protocol, std::iter::once(bytes));
        let size = usize::from(cuts[0]) + 1;
        assert_eq!(decode(protocol, bytes.chunks(size)), whole, "in pieces of {size}");
        let at = usize::from(u16::from_le_bytes([cuts[1], cuts[2]])).min(bytes.len());
        let (first, second) = bytes.split_at(at);
        assert_eq!(decode(protocol, [first, second].into_iter()), whole, "cut at {at}");
    }
    if bytes.iter().filter(|&&byte| byte == b'*').count() < SAFE_NESTING {
        compare(bytes);
    }
}

/// What both decoders take for a reply must be the same reply of the same length.
fn compare(mut bytes: &[u8]) {
    let (ours, _) = decode(Protocol::Resp2, std::iter::once(bytes));
    for outcome in ours {
        let Ok(Some((theirs, length))) = their_decode(bytes) else { return };
        let ours = match &outcome {
            Outcome::Reply(reply) => Ok(reply),
            Outcome::ServerError(ServerError { message }) | Outcome::Rejected(Rejected { message, .. }) => {
                Err(&**message)
            }
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
    Address::Tcp { host: "asked".to_owned(), port: 1 }
}

/// Any reply to CLUSTER SLOTS is read or refused, and never names more slots than it has rows for.
pub(crate) fn check_slots(data: &[u8]) {
    let (outcomes, _) = decode(Protocol::Resp2, std::iter::once(data));
    for outcome in outcomes {
        let Outcome::Reply(reply) = outcome else { continue };
        let Reply::Array(rows) = &reply else {
            assert_eq!(covered_slots(&reply, &asked()), None);
            continue;
        };
        assert!(covered_slots(&reply, &asked()).unwrap_or(0) <= rows.len() * 16_384);
    }
}

/// An endpoint that is understood is understood again as it is printed.
pub(crate) fn check_endpoint(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(address) = endpoint(text, &asked()) else { return };
    let Address::Tcp { host, port } = &address else { panic!("{text:?} became {address:?}") };
    assert!(*port > 0 && !host.is_empty(), "{text:?}");
    assert_eq!(endpoint(&address.to_string(), &asked()).as_ref(), Some(&address), "{text:?}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as servers send it, to a depth of four.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let text = proptest::collection::vec(any::<u8>(), 0..12);
        let line = "[ -~]{0,12}";
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            line.prop_map(|text| format!("+{text}\r\n").into_bytes()),
            line.prop_map(|text| format!("-{text}\r\n").into_bytes()),
            text.prop_map(|text| [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            (0..20_000_i64, 0..20_000_i64, "[a-z?:.]{0,6}", -5..70_000_i64).prop_map(|(first, last, host, port)| {
                let size = host.len();
                format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n${size}\r\n{host}\r\n:{port}\r\n").into_bytes()
            }),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            proptest::collection::vec(inner, 0..5)
                .prop_map(|frames| [format!("*{}\r\n", frames.len()).into_bytes(), frames.concat()].concat())
        })
    }

    /// Frames with a few bytes changed, as a peer that is none might send them.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let spoilt = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
        (proptest::collection::vec(frame(), 1..6), spoilt, any::<[u8; 4]>()).prop_map(|(frames, spoilt, cuts)| {
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
