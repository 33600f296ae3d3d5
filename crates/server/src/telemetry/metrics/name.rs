//! Conversion of the name of a limit to names and labels of metrics.

/// Replaces characters that StatsD cannot carry: colons, bars, and the dots in an IPv4 address.
pub(super) fn sanitized(key: &str) -> String {
    let mut out = key.replace([':', '|'], "_").into_bytes();
    let mut at = 0;
    while at < out.len() {
        match ipv4_length(&out[at..]) {
            Some(length) => {
                out[at..at + length]
                    .iter_mut()
                    .filter(|byte| **byte == b'.')
                    .for_each(|dot| *dot = b'_');
                at += length;
            }
            None => at += 1,
        }
    }
    String::from_utf8(out).expect("only ASCII bytes were replaced, by ASCII")
}

/// Length of an IPv4 address at the start of `text`: four groups of one to three digits with dots
/// between them.
fn ipv4_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for group in 0..4 {
        if group > 0 {
            (text.get(at) == Some(&b'.')).then_some(())?;
            at += 1;
        }
        let digits = text[at..]
            .iter()
            .take(3)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        (digits > 0).then_some(())?;
        at += digits;
    }
    Some(at)
}

/// Labels of a sanitised key: its first three parts. Deeper limits are summed under these.
pub(super) fn labels(key: &str) -> Vec<(&'static str, &str)> {
    ["domain", "key1", "key2"]
        .into_iter()
        .zip(key.split('.'))
        .collect()
}

/// `name` with all characters replaced that Prometheus does not allow in the name of a metric. As
/// in the reference, consecutive hyphens become one.
pub(super) fn escaped(name: &str) -> String {
    let mut last = ' ';
    let kept = name
        .chars()
        .filter(|c| (std::mem::replace(&mut last, *c), *c) != ('-', '-'));
    let mut out: String = kept
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_their_dots() {
        for (key, expected) in [
            ("d.remote_address_10.0.0.1", "d.remote_address_10_0_0_1"),
            ("d.a_1234.1.1.1.k", "d.a_1234_1_1_1.k"),
            ("d.a_1.2.3", "d.a_1.2.3"),
            ("d.path_/a:b|c", "d.path_/a_b_c"),
            ("1.1.1.1.2.2.2.2", "1_1_1_1.2_2_2_2"),
            ("d.\u{e9}_1.1.1.", "d.\u{e9}_1.1.1."),
        ] {
            assert_eq!(sanitized(key), expected, "{key}");
        }
    }

    #[test]
    fn labels_are_the_first_three_parts() {
        assert_eq!(labels("d"), [("domain", "d")]);
        assert_eq!(labels("d."), [("domain", "d"), ("key1", "")]);
        assert_eq!(
            labels("a.b.k_v"),
            [("domain", "a"), ("key1", "b"), ("key2", "k_v")]
        );
        assert_eq!(labels("d.a.b.c.d").len(), 3);
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("d.k_/v*"), "d_k__v_");
        assert_eq!(escaped("1x"), "_1x");
        assert_eq!(escaped("a--b---c-d.-e"), "a_b_c_d__e");
    }
}
