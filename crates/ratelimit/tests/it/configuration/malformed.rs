//! Files that are wrong in as many ways as we could think of, and what is told about each.

use tidegate_ratelimit::{Configuration, SameDomain, Source};

/// A file per line, with `\n`, `\\` and `\xNN` for what does not fit one; then ` => ` and all errors, separated by ` || `.
const FILES: &str = include_str!("malformed.txt");

#[test]
fn every_malformed_file_is_refused_with_its_errors() {
    let mut files = 0;
    for line in FILES.lines() {
        let (text, expected) = line.split_once(" => ").expect("a file and its errors");
        let source = Source {
            name: "f".into(),
            text: unescape(text),
        };
        let errors = Configuration::load(&[source], SameDomain::Refuse).expect_err(text);
        let found: Vec<String> = errors.iter().map(|error| error.to_string()).collect();
        let expected: Vec<String> = expected
            .split(" || ")
            .map(|error| format!("f:{error}"))
            .collect();
        assert_eq!(found, expected, "{text}");
        files += 1;
    }
    assert!(files >= 100, "{files} files");
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
