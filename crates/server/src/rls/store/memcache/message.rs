//! DNS messages for look-ups of SRV records: RFC 1035 and RFC 2782.

/// The type of an SRV record, and the class of the Internet.
const SRV_TYPE_AND_CLASS: [u8; 4] = [0, 33, 0, 1];
const HEADER_BYTES: usize = 12;
/// Maximum of bytes of an encoded name.
const MAX_NAME_BYTES: usize = 255;
/// Maximum of bytes of a label, the part of a name between two dots.
const MAX_LABEL_BYTES: usize = 63;

/// The answer of a DNS server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DnsAnswer {
    /// Hosts, each with a dot at its end, and ports.
    Records(Vec<(String, u16)>),
    /// The name does not exist.
    NoSuchName,
    /// The answer did not fit, and must be requested over TCP.
    Truncated,
    /// The server failed with this response code.
    Failed(u8),
}

/// Encodes a query for the SRV records of `name`. Returns `None` if `name` is invalid.
pub(super) fn question(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(HEADER_BYTES + name.len() + 6);
    message.extend_from_slice(&id.to_be_bytes());
    // The flags request recursion, and the counts say one question.
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        if label.is_empty() || label.len() > MAX_LABEL_BYTES {
            return None;
        }
        message.push(u8::try_from(label.len()).ok()?);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    if message.len() - HEADER_BYTES > MAX_NAME_BYTES {
        return None;
    }
    message.extend_from_slice(&SRV_TYPE_AND_CLASS);
    Some(message)
}

/// Parses the answer to `question`. Returns `None` if `message` is no answer to it.
pub(super) fn answer(question: &[u8], message: &[u8]) -> Option<DnsAnswer> {
    let header = message.first_chunk::<HEADER_BYTES>()?;
    if !is_answer(question, message) {
        return None;
    }
    if header[2] & 0x02 != 0 {
        return Some(DnsAnswer::Truncated);
    }
    match header[3] & 0x0f {
        0 => {}
        3 => return Some(DnsAnswer::NoSuchName),
        code => return Some(DnsAnswer::Failed(code)),
    }
    let count = u16::from_be_bytes([header[6], header[7]]);
    records(message, question.len(), count).map(DnsAnswer::Records)
}

/// Whether `message` answers `question`.
fn is_answer(question: &[u8], message: &[u8]) -> bool {
    let echoed_question = message.get(HEADER_BYTES..question.len());
    message[..2] == question[..2]
        && message[2] & 0x80 != 0
        && echoed_question
            .is_some_and(|echoed| echoed.eq_ignore_ascii_case(&question[HEADER_BYTES..]))
}

/// Hosts and ports of the SRV records among `count` records from `at` on. `None` if a record
/// is invalid.
fn records(message: &[u8], mut at: usize, count: u16) -> Option<Vec<(String, u16)>> {
    let mut found = Vec::new();
    for _ in 0..count {
        at = name(message, at)?.1;
        let head = message.get(at..)?.first_chunk::<10>()?;
        let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let data = at + 10;
        if head[..4] == SRV_TYPE_AND_CLASS {
            let fixed = message.get(data..data + length)?.first_chunk::<6>()?;
            let (host, _) = name(message, data + 6)?;
            // A single dot means that the service does not exist.
            if host != "." && is_host(&host) {
                found.push((host, u16::from_be_bytes([fixed[4], fixed[5]])));
            }
        }
        at = data + length;
    }
    Some(found)
}

/// Parses the name at `at`. Returns it with a dot at its end, and the position after it. Returns
/// `None` if it is invalid.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut after = None;
    loop {
        let length = usize::from(*message.get(at)?);
        match length >> 6 {
            0 if length == 0 => {
                let end = after.unwrap_or(at + 1);
                return Some((
                    if text.is_empty() {
                        ".".to_owned()
                    } else {
                        text
                    },
                    end,
                ));
            }
            0 => {
                let label = message.get(at + 1..=at + length)?;
                text.extend(label.iter().map(|&byte| char::from(byte)));
                text.push('.');
                at += 1 + length;
            }
            3 => {
                let target = (length & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                after.get_or_insert(at + 2);
                // Pointers lead only backward, so that the loop ends.
                at = Some(target).filter(|target| *target < at)?;
            }
            _ => return None,
        }
        if text.len() > MAX_NAME_BYTES {
            return None;
        }
    }
}

/// Whether `name` is a host name without unusual characters.
fn is_host(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "_memcache._tcp.cache.example";

    /// An answer with these bytes behind the question.
    fn reply(flags: [u8; 2], records: u16, rest: &[u8]) -> Vec<u8> {
        let mut message = question(7, NAME).unwrap();
        message[2..4].copy_from_slice(&flags);
        message[6..8].copy_from_slice(&records.to_be_bytes());
        message.extend_from_slice(rest);
        message
    }

    /// A record of the name that was asked for.
    fn record(kind: u16, data: &[u8]) -> Vec<u8> {
        let mut record = vec![0xc0, 12];
        record.extend_from_slice(&kind.to_be_bytes());
        record.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
        record.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
        record.extend_from_slice(data);
        record
    }

    fn srv(port: u16, target: &[u8]) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        record(33, &[&[0, 1, 0, 2, high, low], target].concat())
    }

    fn check(message: &[u8], expected: Option<DnsAnswer>) {
        assert_eq!(answer(&question(7, NAME).unwrap(), message), expected);
    }

    #[test]
    fn records_are_read() {
        // The second target ends with the name `example`, which the question has at byte 12 + 1 + 9 + 1 + 4 + 1 + 5.
        let records = [
            srv(11_211, b"\x01a\x07example\0"),
            record(5, b"\x01x\0"),
            srv(1, b"\x01b\xc0\x21"),
            srv(9, b"\0"),
        ];
        let expected = vec![
            ("a.example.".to_owned(), 11_211),
            ("b.example.".to_owned(), 1),
        ];
        check(
            &reply([0x81, 0x80], 4, &records.concat()),
            Some(DnsAnswer::Records(expected)),
        );
        check(
            &reply([0x81, 0x80], 0, &[]),
            Some(DnsAnswer::Records(Vec::new())),
        );
        check(&reply([0x83, 0x80], 0, &[]), Some(DnsAnswer::Truncated));
        check(&reply([0x81, 0x83], 0, &[]), Some(DnsAnswer::NoSuchName));
        check(&reply([0x81, 0x82], 0, &[]), Some(DnsAnswer::Failed(2)));
    }

    #[test]
    fn what_is_no_answer_is_not_believed() {
        let whole = reply([0x81, 0x80], 1, &srv(1, b"\x01a\0"));
        for cut in 0..whole.len() {
            check(&whole[..cut], None);
        }
        let mut other = whole.clone();
        other[1] = 8;
        check(&other, None);
        let mut other = whole.clone();
        other[13] = b'x';
        check(&other, None);
        check(&question(7, NAME).unwrap(), None);
        // A name that leads to itself, forward, or nowhere.
        for target in [&b"\xc0\xff"[..], b"\xc0\x46", b"\x01a\xc0\x44", b"\x40a\0"] {
            check(&reply([0x81, 0x80], 1, &srv(1, target)), None);
        }
        check(
            &reply([0x81, 0x80], 1, &srv(1, b"\x09evil\r\nset\0")),
            Some(DnsAnswer::Records(Vec::new())),
        );
    }

    #[test]
    fn only_names_are_asked_for() {
        assert!(question(1, "_a._b.example.").is_some());
        for name in ["", ".", "a..b", &"x".repeat(64), &"abc.".repeat(64)] {
            assert!(question(1, name).is_none(), "{name}");
        }
    }
}
