//! Layouts that envoyproxy/ratelimit loads and that a reader of YAML 1.2 refuses or reads as something else.
//!
//! The values were compared with those of yaml.v2 2.4.0 when the table was made (`scripts/yaml-differential`).

use super::shown::shown;

/// A text per line, with `\n`, `\\` and `\xNN` for what does not fit one; then ` => ` and the value.
const LAYOUTS: &str = include_str!("layouts.txt");

#[test]
fn layouts_of_yaml_1_1_have_the_values_of_the_reference() {
    let mut layouts = 0;
    for line in LAYOUTS.lines() {
        let (text, expected) = line.split_once(" => ").expect("a text and its value");
        assert_eq!(shown(&unescape(text)), expected, "{text}");
        layouts += 1;
    }
    assert!(layouts >= 60, "{layouts} layouts");
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => match rest.next() {
                Some(b'n') => bytes.push(b'\n'),
                Some(b'x') => {
                    let digits = [rest.next(), rest.next()]
                        .map(|digit| char::from(digit.expect("two digits")));
                    let number =
                        digits.map(|digit| digit.to_digit(16).expect("a hexadecimal digit") as u8);
                    bytes.push(number[0] * 16 + number[1]);
                }
                other => bytes.push(other.expect("an escaped byte")),
            },
            byte => bytes.push(byte),
        }
    }
    bytes
}
