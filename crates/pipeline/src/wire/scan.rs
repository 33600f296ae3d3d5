//! Finds the end of a reply that arrives in several reads, so that each byte is scanned once.

use super::Protocol;

/// Maximum length of a line in bytes. The library refuses longer ones.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Maximum length of a string in bytes. The library refuses longer ones.
const MAX_STRING_BYTES: usize = 512 << 20;
/// Maximum number of elements of an array. The library refuses more.
const MAX_ELEMENTS: usize = 10_000_000;
/// Maximum nesting that is scanned. The library refuses deeper nesting by its own count, so deeper
/// replies are left to it.
const MAX_DEPTH: usize = 100;

/// State of the incomplete reply at the front of a buffer.
///
/// The library decodes a reply from its start or not at all. An array of 100,000 elements arrives
/// in hundreds of reads, and decoding it from its start at each is quadratic. So the library is
/// called again only if the reply is complete, or has a part that the library may refuse.
#[derive(Debug, Default)]
pub(crate) enum Scan {
    /// The next reply was not scanned yet.
    #[default]
    Fresh,
    /// The reply is incomplete. `scanned` bytes of it were scanned. `open` has the number of
    /// missing elements of each open array, the outermost first. The library is called again at the
    /// latest when the buffer has `retry_at` bytes.
    Within {
        scanned: usize,
        open: Vec<usize>,
        retry_at: usize,
    },
    /// The reply has a part whose end is not known here: the library is called at each read.
    Unknown,
}

/// Result of scanning the next element.
enum ScannedElement {
    /// The element ends at `at`, and `inside` nested elements follow.
    Complete { at: usize, inside: usize },
    /// The first line of the element has not arrived.
    Incomplete,
    /// The end of the element is not known here, or the library may refuse it.
    Unknown,
}

impl Scan {
    /// Returns whether the library may find the whole reply in `buffer`, which has grown.
    pub(crate) fn may_be_complete(&mut self, protocol: Protocol, buffer: &[u8]) -> bool {
        self.scan_elements(protocol, buffer);
        match self {
            Self::Fresh | Self::Unknown => true,
            Self::Within {
                open,
                scanned,
                retry_at,
            } => (open.is_empty() && *scanned <= buffer.len()) || buffer.len() >= *retry_at,
        }
    }

    /// Records that the library found the reply at the front of `buffer` incomplete.
    pub(crate) fn incomplete(&mut self, buffer: &[u8]) {
        let retry_at = 2 * buffer.len();
        match self {
            Self::Fresh => {
                *self = Self::Within {
                    scanned: 0,
                    open: vec![1],
                    retry_at,
                }
            }
            // The library expects one more element than this scan.
            Self::Within { open, scanned, .. } if open.is_empty() && *scanned <= buffer.len() => {
                *self = Self::Unknown
            }
            Self::Within { retry_at: next, .. } => *next = retry_at,
            Self::Unknown => {}
        }
    }

    /// Scans the elements that have arrived since the last call.
    fn scan_elements(&mut self, protocol: Protocol, buffer: &[u8]) {
        let Self::Within { scanned, open, .. } = self else {
            return;
        };
        while !open.is_empty() && *scanned <= buffer.len() {
            // Every element ends with CR LF. The end of a string may be seen only after more has
            // arrived.
            let follows = *scanned == 0 || buffer[..*scanned].ends_with(b"\r\n");
            if follows && *scanned == buffer.len() {
                return;
            }
            let next = if follows {
                element(protocol, buffer, *scanned)
            } else {
                ScannedElement::Unknown
            };
            match next {
                ScannedElement::Complete { at, inside } if open.len() <= MAX_DEPTH => {
                    *scanned = at;
                    count_element(open, inside);
                }
                ScannedElement::Incomplete => return,
                ScannedElement::Complete { .. } | ScannedElement::Unknown => {
                    *self = Self::Unknown;
                    return;
                }
            }
        }
    }
}

/// Counts a scanned element in `open`, the number of missing elements of each open array.
fn count_element(open: &mut Vec<usize>, inside: usize) {
    if let Some(left) = open.last_mut() {
        *left -= 1;
    }
    if inside > 0 {
        open.push(inside);
    }
    while open.last() == Some(&0) {
        open.pop();
    }
}

/// Scans the element that starts at `start`. Its end may be past the buffer.
fn element(protocol: Protocol, buffer: &[u8], start: usize) -> ScannedElement {
    let tags: &[u8] = match protocol {
        Protocol::Resp2 => b"+-:$*",
        Protocol::Resp3 => b"+-:$*!=~>%_#,(",
    };
    if !tags.contains(&buffer[start]) {
        return ScannedElement::Unknown;
    }
    let Some((header, after)) = line(buffer, start) else {
        return if may_continue(&buffer[start..]) {
            ScannedElement::Incomplete
        } else {
            ScannedElement::Unknown
        };
    };
    let Some((&tag, rest)) = header.split_first() else {
        return ScannedElement::Unknown;
    };
    if header.len() > MAX_LINE_BYTES || rest.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return ScannedElement::Unknown;
    }
    let known = |known: bool, inside: usize| {
        if known {
            ScannedElement::Complete { at: after, inside }
        } else {
            ScannedElement::Unknown
        }
    };
    let container = |each: usize| match number(rest, MAX_ELEMENTS / each) {
        Some(count) => known(true, count * each),
        None => ScannedElement::Unknown,
    };
    match (tag, protocol) {
        (b'$' | b'*', _) if rest == b"-1" => known(true, 0),
        (b'+' | b'-', _) => known(true, 0),
        (b':', _) => known(integer(rest), 0),
        (b'$', _) | (b'!' | b'=', Protocol::Resp3) => string(tag, rest, buffer, after),
        (b'*', _) | (b'~' | b'>', Protocol::Resp3) => container(1),
        (b'%', Protocol::Resp3) => container(2),
        (b'_', Protocol::Resp3) => known(rest.is_empty(), 0),
        (b'#', Protocol::Resp3) => known(matches!(rest, b"t" | b"f"), 0),
        (b',', Protocol::Resp3) => known(float(rest), 0),
        (b'(', Protocol::Resp3) => known(integer(rest), 0),
        // An attribute precedes an element and is none, and no server sends streamed types.
        _ => ScannedElement::Unknown,
    }
}

/// Returns whether the library waits for the rest of this line.
fn may_continue(begun: &[u8]) -> bool {
    match begun[0] {
        // The length of these lines is fixed.
        b'_' => b"_\r\n".starts_with(begun),
        b'#' => b"#t\r\n".starts_with(begun) || b"#f\r\n".starts_with(begun),
        _ => begun.len() <= MAX_LINE_BYTES,
    }
}

/// Scans a string whose content starts at `start`, and whose length is `length`.
fn string(tag: u8, length: &[u8], buffer: &[u8], start: usize) -> ScannedElement {
    let Some(length) = number(length, MAX_STRING_BYTES) else {
        return ScannedElement::Unknown;
    };
    if tag == b'=' {
        // The content begins with three letters and a colon.
        match buffer.get(start + 3) {
            None if length > 3 => return ScannedElement::Incomplete,
            Some(b':') if length > 3 => {}
            _ => return ScannedElement::Unknown,
        }
    }
    ScannedElement::Complete {
        at: start + length + 2,
        inside: 0,
    }
}

/// Parses a number of at most `max`, in the form of servers.
fn number(text: &[u8], max: usize) -> Option<usize> {
    let plain = text == b"0" || (text.iter().all(u8::is_ascii_digit) && !text.starts_with(b"0"));
    let number = std::str::from_utf8(text)
        .ok()
        .filter(|_| plain)?
        .parse()
        .ok()?;
    (number <= max).then_some(number)
}

/// Returns whether the text is an integer of 64 bits.
fn integer(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default();
    !text.starts_with('+') && text.parse::<i64>().is_ok()
}

/// Returns whether the text is a number with a fraction.
fn float(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
        && text.parse::<f64>().is_ok()
}

/// Returns the line that starts at `start`, without its end, and the start of the next one.
fn line(buffer: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let rest = &buffer[start..];
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    Some((&rest[..end], start + end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes `wire` to a scan in pieces of `size` bytes. Checks that the library is called when
    /// all has arrived, and before that for at most twice the bytes.
    fn check(protocol: Protocol, wire: &str, size: usize) {
        let mut scan = Scan::default();
        let mut rescanned = 0;
        for end in (size..wire.len()).step_by(size) {
            let buffer = &wire.as_bytes()[..end];
            if scan.may_be_complete(protocol, buffer) {
                rescanned += end;
                scan.incomplete(buffer);
            }
        }
        assert!(
            scan.may_be_complete(protocol, wire.as_bytes()),
            "{} bytes by {size}",
            wire.len()
        );
        assert!(
            matches!(&scan, Scan::Within { open, scanned, .. } if open.is_empty() && *scanned == wire.len()),
            "{scan:?}"
        );
        assert!(
            rescanned <= 2 * wire.len(),
            "{rescanned} bytes were read again of {}",
            wire.len()
        );
    }

    #[test]
    fn the_end_of_a_reply_is_found_and_the_library_is_not_called_before() {
        let array = format!(
            "*20000\r\n{}",
            "$5\r\nhello\r\n:7\r\n*2\r\n$-1\r\n*0\r\n+OK\r\n".repeat(5_000)
        );
        for size in [1, 7, 100, 4096] {
            check(Protocol::Resp2, &array, size);
        }
        let map = format!(
            "%3000\r\n{}",
            "+a\r\n~2\r\n_\r\n#t\r\n,1.5\r\n=7\r\ntxt:abc\r\n".repeat(3_000 / 2)
        );
        check(Protocol::Resp3, &map, 64);
        check(
            Protocol::Resp2,
            &format!("$100000\r\n{}\r\n", "\r\n".repeat(50_000)),
            64,
        );
    }

    #[test]
    fn what_has_no_known_end_is_left_to_the_library() {
        for wire in [
            "*2\r\n|1\r\n",
            "*2\r\n;",
            "*2\r\n\r\n",
            "*1\r\n$?\r\n",
            "*2\r\n$-2\r\n",
            "*9\r\n:x\r\n",
            "*9\r\n$1\r\naX\n",
        ] {
            let mut scan = Scan::default();
            scan.incomplete(b"*");
            assert!(
                scan.may_be_complete(Protocol::Resp3, format!("{wire}\r\n").as_bytes()),
                "{wire:?}: {scan:?}"
            );
        }
    }
}
