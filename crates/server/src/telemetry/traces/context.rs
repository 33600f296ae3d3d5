//! Parser of trace headers: W3C Trace Context, and B3 in both forms. Baggage is not used.

use http::{HeaderMap, HeaderName};
use tidegate_api::TraceContext;

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
static B3: HeaderName = HeaderName::from_static("b3");
static B3_TRACE: HeaderName = HeaderName::from_static("x-b3-traceid");
static B3_SPAN: HeaderName = HeaderName::from_static("x-b3-spanid");
static B3_SAMPLED: HeaderName = HeaderName::from_static("x-b3-sampled");
static B3_FLAGS: HeaderName = HeaderName::from_static("x-b3-flags");

/// Size limit of `tracestate` in bytes, the minimum that W3C requires. A longer value is dropped.
const MAX_STATE_BYTES: usize = 512;

/// Trace context of the caller. Empty if no header is valid.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct IncomingContext {
    pub(super) trace: Option<u128>,
    /// Span of the caller.
    pub(super) parent: Option<u64>,
    /// Sampling decision of the caller. None if this server decides.
    pub(super) sampled: Option<bool>,
}

/// Parses the headers. As in the reference, B3 takes precedence over W3C.
pub(super) fn parse_context(headers: &HeaderMap) -> IncomingContext {
    let get = |name| headers.get(name).map(http::HeaderValue::as_bytes);
    get(&B3)
        .and_then(b3_single)
        .or_else(|| {
            b3_multi(
                get(&B3_TRACE),
                get(&B3_SPAN),
                get(&B3_SAMPLED),
                get(&B3_FLAGS),
            )
        })
        .or_else(|| get(&TRACEPARENT).and_then(traceparent))
        .unwrap_or_default()
}

/// The `tracestate` header with the data of vendors, unchanged.
pub(super) fn state(headers: &HeaderMap) -> String {
    let mut state = String::new();
    for value in headers.get_all(&TRACESTATE) {
        let Ok(text) = value.to_str() else {
            return String::new();
        };
        if state.len() + text.len() >= MAX_STATE_BYTES {
            return String::new();
        }
        if !state.is_empty() {
            state.push(',');
        }
        state.push_str(text);
    }
    state
}

/// Trace context of the caller, to store with a workflow that the call creates.
pub(crate) fn caller(headers: &HeaderMap) -> Option<TraceContext> {
    let IncomingContext {
        trace,
        parent,
        sampled,
    } = parse_context(headers);
    Some(TraceContext {
        trace: trace?,
        span: parent?,
        sampled,
        state: state(headers),
    })
}

fn traceparent(text: &[u8]) -> Option<IncomingContext> {
    let TraceContext {
        trace,
        span,
        sampled,
        ..
    } = TraceContext::parse_traceparent(text)?;
    Some(IncomingContext {
        trace: Some(trace),
        parent: Some(span),
        sampled,
    })
}

/// Parses `TRACE-SPAN[-SAMPLED[-PARENT]]`, or a decision alone.
fn b3_single(text: &[u8]) -> Option<IncomingContext> {
    let mut parts = text.split(|byte| *byte == b'-');
    let first = parts.next()?;
    let Some(span) = parts.next() else {
        return Some(IncomingContext {
            sampled: Some(b3_decision(first)?),
            ..IncomingContext::default()
        });
    };
    let sampled = match parts.next() {
        Some(word) => Some(b3_decision(word)?),
        None => None,
    };
    b3_ids(first, span, sampled)
}

/// Parses B3 with one header for each value. The parent of the caller's span is not needed.
fn b3_multi(
    trace: Option<&[u8]>,
    span: Option<&[u8]>,
    sampled: Option<&[u8]>,
    flags: Option<&[u8]>,
) -> Option<IncomingContext> {
    let sampled = match (flags, sampled) {
        (Some(b"1"), _) => Some(true),
        (_, Some(word)) => Some(b3_decision(word)?),
        _ => None,
    };
    match (trace, span) {
        (Some(trace), Some(span)) => b3_ids(trace, span, sampled),
        (None, None) => sampled.map(|sampled| IncomingContext {
            sampled: Some(sampled),
            ..IncomingContext::default()
        }),
        _ => None,
    }
}

fn b3_decision(word: &[u8]) -> Option<bool> {
    match word {
        b"1" | b"d" | b"true" => Some(true),
        b"0" | b"false" => Some(false),
        _ => None,
    }
}

fn b3_ids(trace: &[u8], span: &[u8], sampled: Option<bool>) -> Option<IncomingContext> {
    // Old tracers use short ids.
    if !matches!((trace.len(), span.len()), (16 | 32, 16)) {
        return None;
    }
    // An id of zeros is invalid.
    let [trace, span] = [trace, span].map(|id| parse_hex(id).filter(|id| *id != 0));
    Some(IncomingContext {
        trace: Some(trace?),
        parent: Some(span? as u64),
        sampled,
    })
}

/// Parses a hexadecimal number of at most 32 digits.
fn parse_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        Some(number << 4 | u128::from((*digit as char).to_digit(16)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    /// `expected` as sampled, for the ids above; the outer None is no context at all.
    #[track_caller]
    fn check(headers: &[(&'static str, &str)], expected: Option<Option<bool>>) {
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let ids = |sampled| IncomingContext {
            trace: u128::from_str_radix(TRACE, 16).ok(),
            parent: u64::from_str_radix(SPAN, 16).ok(),
            sampled,
        };
        assert_eq!(
            parse_context(&map),
            expected.map_or_else(IncomingContext::default, ids),
            "{headers:?}"
        );
    }

    #[test]
    fn traceparent_is_read_as_w3c_writes_it() {
        for (text, expected) in [
            (format!("00-{TRACE}-{SPAN}-01"), Some(Some(true))),
            (format!("00-{TRACE}-{SPAN}-00"), Some(Some(false))),
            (format!("00-{TRACE}-{SPAN}-02"), Some(Some(false))),
            (format!("cc-{TRACE}-{SPAN}-01"), Some(Some(true))),
            (
                format!("cc-{TRACE}-{SPAN}-01-what-comes-later"),
                Some(Some(true)),
            ),
            (format!("cc-{TRACE}-{SPAN}-01.what"), None),
            (format!("00-{TRACE}-{SPAN}-01-more"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{SPAN}-01", TRACE.replace('9', "x")), None),
            (format!("00-{}-{SPAN}-01", TRACE.replace('9', "+")), None),
            (format!("0x-{TRACE}-{SPAN}-01"), None),
            (format!("00_{TRACE}_{SPAN}_01"), None),
            ("0".repeat(64 * 1024), None),
            ("-".repeat(55), None),
            (String::new(), None),
        ] {
            check(&[("traceparent", &text)], expected);
        }
    }

    #[test]
    fn b3_is_read_in_both_forms() {
        for (text, expected) in [
            (format!("{TRACE}-{SPAN}-1"), Some(Some(true))),
            (format!("{TRACE}-{SPAN}-d"), Some(Some(true))),
            (format!("{TRACE}-{SPAN}-0"), Some(Some(false))),
            (
                format!("{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90"),
                Some(Some(true)),
            ),
            (format!("{TRACE}-{SPAN}"), Some(None)),
            (format!("{TRACE}-{SPAN}-2"), None),
            (format!("{}-{SPAN}-1", &TRACE[1..]), None),
            (format!("{TRACE}-{}-1", &SPAN[1..]), None),
            (TRACE.to_owned(), None),
            ("-".repeat(64 * 1024), None),
            (String::new(), None),
        ] {
            check(&[("b3", &text)], expected);
        }
        let ids = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN)];
        check(&ids, Some(None));
        for (name, value, expected) in [
            ("x-b3-sampled", "1", Some(true)),
            ("x-b3-sampled", "0", Some(false)),
            ("x-b3-sampled", "false", Some(false)),
            ("x-b3-flags", "1", Some(true)),
            ("x-b3-flags", "0", None),
        ] {
            check(&[ids[0], ids[1], (name, value)], Some(expected));
        }
        check(&[ids[0], ids[1], ("x-b3-sampled", "perhaps")], None);
        check(&ids[..1], None);
        check(
            &[
                ("traceparent", &format!("00-{}-{SPAN}-00", "1".repeat(32))),
                ids[0],
                ids[1],
            ],
            Some(None),
        );
    }

    #[test]
    fn a_decision_may_come_alone() {
        for (name, value, sampled) in [
            ("b3", "0", false),
            ("b3", "d", true),
            ("x-b3-sampled", "1", true),
        ] {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())]);
            assert_eq!(
                parse_context(&headers),
                IncomingContext {
                    sampled: Some(sampled),
                    ..IncomingContext::default()
                },
                "{name} {value}"
            );
        }
    }

    #[test]
    fn the_state_of_vendors_is_kept_up_to_512_bytes() {
        let of = |values: &[&str]| {
            let pairs = values
                .iter()
                .map(|value| (TRACESTATE.clone(), value.parse().unwrap()));
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value);
            }
            state(&headers)
        };
        assert_eq!(of(&["a=1", "b=2"]), "a=1,b=2");
        assert_eq!(of(&[&"a".repeat(513)]), "");
        assert_eq!(of(&[]), "");
    }
}
