//! Finds the end of a reply that arrives in pieces, so that each byte is looked at once.

use crate::wire::reply::Protocol;

/// The library refuses longer lines.
const LONGEST_LINE: usize = 64 * 1024;

/// How much is known of the incomplete reply at the front of a buffer.
///
/// The library reads a reply from its start or not at all. An array of 100,000 elements arrives in hundreds of reads, and
/// to read it from its start at each is quadratic. So the library is asked again only when the reply is complete.
#[derive(Debug, Default)]
pub(crate) enum Scan {
    /// Nothing: the next reply has not been looked at.
    #[default]
    Fresh,
    /// It is incomplete. So many bytes of it were looked at, and so many of its elements are still to come. The library is
    /// asked again at the latest when the buffer has `ask_at` bytes: it knows limits that are not known here.
    Within { scanned: usize, elements: usize, ask_at: usize },
    /// It has a part whose end is not known here: the library is asked at each read.
    Unknown,
}

/// What the next element is.
enum Element {
    /// It ends here, and so many elements inside of it follow.
    Ends { at: usize, inside: usize },
    /// Its first line has not arrived.
    Incomplete,
    /// Its end is not known here.
    Unknown,
}

impl Scan {
    /// Whether the library may find the whole reply in `buffer`, which has grown.
    pub(crate) fn may_be_complete(&mut self, protocol: Protocol, buffer: &[u8]) -> bool {
        self.go_on(protocol, buffer);
        match self {
            Self::Fresh | Self::Unknown => true,
            Self::Within { elements, scanned, ask_at } => {
                (*elements == 0 && *scanned <= buffer.len()) || buffer.len() >= *ask_at
            }
        }
    }

    /// Takes note that the library found the reply at the front of `buffer` incomplete.
    pub(crate) fn incomplete(&mut self, buffer: &[u8]) {
        let ask_at = 2 * buffer.len();
        match self {
            Self::Fresh => *self = Self::Within { scanned: 0, elements: 1, ask_at },
            // The library sees an element more than is seen here.
            Self::Within { elements: 0, scanned, .. } if *scanned <= buffer.len() => *self = Self::Unknown,
            Self::Within { ask_at: next, .. } => *next = ask_at,
            Self::Unknown => {}
        }
    }

    /// Looks at the elements that have arrived since the last time.
    fn go_on(&mut self, protocol: Protocol, buffer: &[u8]) {
        let Self::Within { scanned, elements, .. } = self else { return };
        while *elements > 0 && *scanned < buffer.len() {
            match element(protocol, buffer, *scanned) {
                Element::Ends { at, inside } => {
                    *scanned = at;
                    *elements = (*elements - 1).saturating_add(inside);
                }
                Element::Incomplete => return,
                Element::Unknown => {
                    *self = Self::Unknown;
                    return;
                }
            }
        }
    }
}

/// Reads the element that starts at `start`. Its end may be beyond the buffer.
fn element(protocol: Protocol, buffer: &[u8], start: usize) -> Element {
    let Some((header, after)) = line(buffer, start) else {
        return if buffer.len() - start > LONGEST_LINE { Element::Unknown } else { Element::Incomplete };
    };
    let Some((&tag, rest)) = header.split_first() else { return Element::Unknown };
    let number = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<usize>().ok());
    let bytes = |length: usize| Element::Ends { at: after.saturating_add(length).saturating_add(2), inside: 0 };
    let container = |inside: usize| Element::Ends { at: after, inside };
    match (tag, protocol) {
        (b'+' | b'-' | b':', _) | (b'_' | b'#' | b',' | b'(', Protocol::Resp3) => container(0),
        (b'$' | b'*', _) if rest == b"-1" => container(0),
        (b'$', _) | (b'=' | b'!', Protocol::Resp3) => number().map_or(Element::Unknown, bytes),
        (b'*', _) | (b'~' | b'>', Protocol::Resp3) => number().map_or(Element::Unknown, container),
        (b'%', Protocol::Resp3) => number().map_or(Element::Unknown, |pairs| container(pairs.saturating_mul(2))),
        // An attribute stands before an element and is none, and no server sends streamed types.
        _ => Element::Unknown,
    }
}

/// The line that starts at `start`, without its end, and where the next one starts.
fn line(buffer: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let rest = &buffer[start..];
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    Some((&rest[..end], start + end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `wire` to a scan in pieces of `size` bytes. Compares whether the library is asked when all has arrived, and that
    /// it is asked before for no more than twice the bytes.
    fn check(protocol: Protocol, wire: &str, size: usize) {
        let (mut scan, mut asked) = (Scan::default(), 0);
        for end in (size..wire.len()).step_by(size) {
            let buffer = &wire.as_bytes()[..end];
            if scan.may_be_complete(protocol, buffer) {
                asked += end;
                scan.incomplete(buffer);
            }
        }
        assert!(scan.may_be_complete(protocol, wire.as_bytes()), "{} bytes by {size}", wire.len());
        assert!(matches!(scan, Scan::Within { elements: 0, scanned, .. } if scanned == wire.len()), "{scan:?}");
        assert!(asked <= 2 * wire.len(), "{asked} bytes were read again of {}", wire.len());
    }

    #[test]
    fn the_end_of_a_reply_is_found_and_the_library_is_not_asked_before() {
        let array = format!("*20000\r\n{}", "$5\r\nhello\r\n:7\r\n*2\r\n$-1\r\n*0\r\n+OK\r\n".repeat(5_000));
        for size in [1, 7, 100, 4096] {
            check(Protocol::Resp2, &array, size);
        }
        let map = format!("%3000\r\n{}", "+a\r\n~2\r\n_\r\n#t\r\n,1.5\r\n=7\r\ntxt:abc\r\n".repeat(3_000 / 2));
        check(Protocol::Resp3, &map, 64);
        check(Protocol::Resp2, &format!("$100000\r\n{}\r\n", "\r\n".repeat(50_000)), 64);
    }

    #[test]
    fn what_has_no_known_end_is_left_to_the_library() {
        for wire in ["*2\r\n|1\r\n", "*2\r\n;", "*2\r\n\r\n", "*1\r\n$?\r\n", "*2\r\n$-2\r\n"] {
            let mut scan = Scan::default();
            scan.incomplete(b"*");
            assert!(scan.may_be_complete(Protocol::Resp3, format!("{wire}\r\n").as_bytes()), "{wire:?}: {scan:?}");
        }
    }
}
