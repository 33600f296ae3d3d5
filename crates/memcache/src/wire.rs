//! The text protocol of memcached: encodes commands and decodes replies.

use bytes::{BufMut, BytesMut};

/// Maximum length of a reply line in bytes: a key of 250 bytes with its numbers. Texts of errors
/// are shorter.
const MAX_LINE: usize = 1024;
/// Maximum length in bytes of a value that may be a counter: 20 digits, and the padding of
/// memcached when a counter gets shorter.
const MAX_COUNT: usize = 32;
/// Maximum length in bytes of a value that is skipped: the default item size of memcached.
const MAX_VALUE: usize = 1024 * 1024;

/// One reply of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply<'b> {
    /// A key that was found, and its value.
    Value {
        key: &'b [u8],
        value: &'b [u8],
    },
    /// A key whose value is too long for a counter. The `rest` bytes that follow must be skipped.
    Long {
        key: &'b [u8],
        rest: usize,
    },
    /// End of the values of a `get`.
    End,
    Stored,
    NotStored,
    NotFound,
    /// The new value of a counter, which is not needed.
    Number,
    /// The server failed: `SERVER_ERROR` or `CLIENT_ERROR`.
    Refused,
}

/// Bytes that are not a valid or expected reply, described for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Garbage(pub(crate) String);

/// Decodes the reply at the start of `input`. Returns it and its length. `Ok(None)` if more bytes
/// are needed.
pub(crate) fn decode(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Garbage> {
    let Some(end) = input.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
        return if input.len() < MAX_LINE {
            Ok(None)
        } else {
            Err(garbage("a line without an end", input))
        };
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let reply = match line {
        b"END" => Reply::End,
        b"STORED" => Reply::Stored,
        b"NOT_STORED" => Reply::NotStored,
        b"NOT_FOUND" => Reply::NotFound,
        _ if line.starts_with(b"VALUE ") => return value(line, &input[end + 1..], end + 1),
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
            Reply::Refused
        }
        _ if count(line).is_some() => Reply::Number,
        _ => return Err(garbage("an unexpected line", line)),
    };
    Ok(Some((reply, end + 1)))
}

/// Reads `VALUE key flags bytes`, and the value that follows.
fn value<'b>(
    line: &'b [u8],
    after: &'b [u8],
    used: usize,
) -> Result<Option<(Reply<'b>, usize)>, Garbage> {
    let mut words = line.split(|&byte| byte == b' ').skip(1);
    let key = words.next();
    let length = words.nth(1);
    let (Some(key), Some(length)) = (key, length.and_then(count)) else {
        return Err(garbage("an unexpected line", line));
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_VALUE {
        return Err(garbage("a value that is too long", line));
    }
    if length > MAX_COUNT {
        return Ok(Some((
            Reply::Long {
                key,
                rest: length + 2,
            },
            used,
        )));
    }
    let Some(value) = after.get(..length + 2) else {
        return Ok(None);
    };
    let Some(value) = value.strip_suffix(b"\r\n") else {
        return Err(garbage("a value of another length", line));
    };
    Ok(Some((Reply::Value { key, value }, used + length + 2)))
}

/// Parses the number of a counter. memcached pads a counter that gets shorter with spaces at its
/// end.
pub(crate) fn count(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn garbage(what: &str, bytes: &[u8]) -> Garbage {
    // 80 bytes hold the usual texts of errors.
    let shown: String = String::from_utf8_lossy(&bytes[..bytes.len().min(80)])
        .escape_debug()
        .collect();
    Garbage(format!("the server sent {what}: '{shown}'"))
}

/// Writes `get` of these keys.
pub(crate) fn get(out: &mut BytesMut, keys: &[u8]) {
    out.put_slice(b"get ");
    out.put_slice(keys);
    out.put_slice(b"\r\n");
}

/// Writes `add` of a counter with the value zero.
pub(crate) fn add_zero(out: &mut BytesMut, key: &[u8], expiry: u64) {
    out.put_slice(b"add ");
    out.put_slice(key);
    out.put_slice(b" 0 ");
    out.put_slice(itoa::Buffer::new().format(expiry).as_bytes());
    out.put_slice(b" 1\r\n0\r\n");
}

/// Writes `incr`.
pub(crate) fn increment(out: &mut BytesMut, key: &[u8], hits: u64) {
    change(out, b"incr ", key, hits);
}

/// Writes `decr`, which stops at zero.
pub(crate) fn decrement(out: &mut BytesMut, key: &[u8], hits: u64) {
    change(out, b"decr ", key, hits);
}

fn change(out: &mut BytesMut, command: &[u8], key: &[u8], hits: u64) {
    out.put_slice(command);
    out.put_slice(key);
    out.put_u8(b' ');
    out.put_slice(itoa::Buffer::new().format(hits).as_bytes());
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(input: &str, expected: Option<(Reply<'_>, usize)>) {
        assert_eq!(decode(input.as_bytes()), Ok(expected), "{input:?}");
    }

    #[test]
    fn replies_are_read() {
        for (input, reply) in [
            ("END\r\n", Reply::End),
            ("STORED\r\n", Reply::Stored),
            ("NOT_STORED\r\n", Reply::NotStored),
            ("NOT_FOUND\r\n", Reply::NotFound),
            ("17\r\n", Reply::Number),
            ("9 \r\n", Reply::Number),
            ("SERVER_ERROR out of memory\r\n", Reply::Refused),
            (
                "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
                Reply::Refused,
            ),
            (
                "VALUE a_1 0 2\r\n17\r\n",
                Reply::Value {
                    key: b"a_1",
                    value: b"17",
                },
            ),
            (
                "VALUE a 4 1 77\r\nx\r\n",
                Reply::Value {
                    key: b"a",
                    value: b"x",
                },
            ),
        ] {
            check(input, Some((reply, input.len())));
            check(&format!("{input}END\r\n"), Some((reply, input.len())));
            for cut in 0..input.len() {
                check(&input[..cut], None);
            }
        }
        check(
            "VALUE a 0 40\r\nxx",
            Some((
                Reply::Long {
                    key: b"a",
                    rest: 42,
                },
                14,
            )),
        );
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let endless = "x".repeat(MAX_LINE);
        for input in [
            "ERROR\r\n",
            "ERROR Too many open connections\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
            "-ERR unknown command\r\n",
            "\r\n",
            "-1\r\n",
            "99999999999999999999\r\n",
            "VALUE\r\n",
            "VALUE a 0\r\n",
            "VALUE a 0 x\r\n",
            "VALUE a 0 -1\r\n",
            "VALUE a 0 99999999\r\n",
            "VALUE a 0 1\r\n17\r\n",
            &endless,
        ] {
            assert!(decode(input.as_bytes()).is_err(), "{input:?}");
        }
    }

    #[test]
    fn counters_are_decimal_numbers_up_to_64_bits() {
        for (text, value) in [
            ("0", Some(0)),
            ("17  ", Some(17)),
            ("18446744073709551615", Some(u64::MAX)),
            ("007", Some(7)),
        ] {
            assert_eq!(count(text.as_bytes()), value, "{text:?}");
        }
        for text in [
            "",
            " ",
            " 1",
            "1.5",
            "-1",
            "+1",
            "x",
            "18446744073709551616",
        ] {
            assert_eq!(count(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn commands_are_written() {
        let mut out = BytesMut::new();
        get(&mut out, b"a b");
        add_zero(&mut out, b"a", 60);
        increment(&mut out, b"a", 3);
        decrement(&mut out, b"a", u64::MAX);
        assert_eq!(
            &out[..],
            b"get a b\r\nadd a 0 60 1\r\n0\r\nincr a 3\r\ndecr a 18446744073709551615\r\n"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_reply_or_too_few_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            if let Ok(Some((_, used))) = decode(&bytes) {
                prop_assert!(0 < used && used <= bytes.len());
            } else if bytes.len() >= MAX_LINE + MAX_COUNT + 2 {
                prop_assert!(decode(&bytes).is_err());
            }
        }
    }
}
