//! Random values, written in random layouts, are read as what they are.

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::shown::shown;

#[derive(Debug, Clone)]
enum Value {
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

fn value() -> impl Strategy<Value = Value> {
    let text = "[a-c]{1,3}|[ a:#'\"\\\\\n\t,\\[\\]{}&*!|>%@`?é\u{1f600}-]{0,8}";
    let leaf = text.prop_map(Value::Text);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            prop::collection::vec((text, inner), 0..4).prop_map(Value::Map),
        ]
    })
}

/// Writes values. What is chosen freely is chosen by a random number.
struct Writer {
    random: TestRng,
    out: String,
}

impl Writer {
    fn add(&mut self, choices: &[&str]) {
        self.out += choices[self.random.random_range(0..choices.len())];
    }

    /// A line break, after a comment or not.
    fn end_line(&mut self) {
        self.add(&["", "", " ", " # c", " # - x: [\"", "\n", " \n", "\n# c"]);
        self.out += "\n";
    }

    fn text(&mut self, text: &str, is_key: bool, indent: usize) {
        let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_block =
            !is_key && !text.contains(['\t']) && text.trim_start() == text && !text.is_empty();
        match self.random.random_range(0..4) {
            // A word is shown without quotes when it has none, so that all are written with them.
            0 if !text.contains('\n') => self.out += &format!("'{}'", text.replace('\'', "''")),
            1 if is_word => {
                self.out += &format!("\"{}\"", text.replace('a', "\\x61").replace('b', "\\u0062"))
            }
            2 if is_block && indent > 0 => {
                let kept = text.strip_suffix('\n').map(|text| format!("{text}\n"));
                let sign = if kept.is_some() { "|+" } else { "|-" };
                let body = text
                    .strip_suffix('\n')
                    .unwrap_or(text)
                    .replace('\n', &format!("\n{}", " ".repeat(indent)));
                self.out += &format!("{sign}\n{}{body}", " ".repeat(indent));
            }
            _ => self.out += &format!("\"{}\"", escaped(text)),
        }
    }

    fn flow(&mut self, value: &Value) {
        let gaps = ["", " ", "\n", "\t", " # c\n", "\n\n  "];
        match value {
            Value::Text(text) => self.text(text, true, 0),
            Value::List(items) => {
                self.out += "[";
                for item in items {
                    self.add(&gaps);
                    self.flow(item);
                    self.add(&gaps);
                    self.out += ",";
                }
                self.out += "]";
            }
            Value::Map(pairs) => {
                self.out += "{";
                for (key, value) in pairs {
                    self.add(&gaps);
                    self.add(&["", "? "]);
                    self.text(key, true, 0);
                    self.add(&[": ", ":\t", ":", " : "]);
                    self.flow(value);
                    self.add(&gaps);
                    self.out += ",";
                }
                self.out += "}";
            }
        }
    }

    /// Writes a value behind a dash or colon, of which a tab may follow the colon only, and ends the line.
    fn block(&mut self, value: &Value, indent: usize, gaps: &[&str]) {
        let step = self.random.random_range(1..4);
        match value {
            Value::List(items) if !items.is_empty() && self.random.random() => {
                self.end_line();
                for item in items {
                    self.out += &" ".repeat(indent + step);
                    self.out += "-";
                    self.block(item, indent + step, &[" ", "   "]);
                }
            }
            Value::Map(pairs) if !pairs.is_empty() && self.random.random() => {
                self.end_line();
                for (key, value) in pairs {
                    self.out += &" ".repeat(indent + step);
                    self.text(key, true, 0);
                    self.out += ":";
                    self.block(value, indent + step, &[" ", "\t", " \t"]);
                }
            }
            Value::Text(text) => {
                self.add(gaps);
                self.text(text, false, indent + step);
                // A comment or empty line could be part of a block scalar.
                self.out += "\n";
            }
            _ => {
                self.add(gaps);
                self.flow(value);
                self.end_line();
            }
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\t', "\\t")
}

fn written(value: &Value) -> String {
    let text = |text: &str| format!("\"{}\"", text.escape_default());
    match value {
        Value::Text(value) => text(value),
        Value::List(items) => format!(
            "[{}]",
            items.iter().map(written).collect::<Vec<_>>().join(", ")
        ),
        Value::Map(pairs) => {
            let pair =
                |(key, value): &(String, Value)| format!("{}: {}", text(key), written(value));
            format!(
                "{{{}}}",
                pairs.iter().map(pair).collect::<Vec<_>>().join(", ")
            )
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_value_is_read_in_every_layout(value in value(), random in any::<[u8; 32]>(), breaks in 0..3_usize) {
        let line_break = ["\n", "\r\n", "\r"][breaks];
        let random = TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &random);
        let mut writer = Writer { random, out: "-".to_owned() };
        writer.block(&value, 0, &[" "]);
        let text = writer.out.replace('\n', line_break);
        let bytes = text.trim_end_matches([' ', '\t']);
        let mut utf_16 = vec![0xFF, 0xFE];
        utf_16.extend(bytes.encode_utf16().flat_map(u16::to_le_bytes));
        let expected = format!("[{}]", written(&value));
        prop_assert_eq!(shown(bytes.as_bytes()), &*expected, "{:?}", text);
        prop_assert_eq!(shown(&utf_16), &*expected, "{:?} in UTF-16", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[ \n\t\r:#'\"\\\\,\\[\\]{}&*!|>%@`?ab0-9.+<\u{85}\u{feff}-]{0,60}") {
        let _ = shown(text.as_bytes());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), mark in 0..3_usize) {
        let mut text = [&b"\xff\xfe"[..], b"\xfe\xff", b""][mark].to_vec();
        text.extend(bytes);
        let _ = shown(&text);
    }
}
