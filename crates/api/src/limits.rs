//! Limits: their configuration and overrides, checks without a charge, top keys, and waiting jobs.

pub(crate) mod check;
pub(crate) mod configuration;
pub(crate) mod overrides;
pub(crate) mod refusals;
pub(crate) mod series;
pub(crate) mod top;
pub(crate) mod waiting;

use serde::{Deserialize, Serialize};
use tidegate_ratelimit::{Entry, StoreError};

use crate::http::body;
use crate::http::json::{self, Verbatim};
use crate::http::problem::{Code, Problem};

/// Largest body of these calls, in bytes. Its parsed form takes some thirty times as much memory.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Most bytes of one text of a configuration in an answer. It may have longer ones.
const MAX_TEXT_BYTES: usize = 400;

/// Most bytes of all lists in an answer.
const MAX_LISTS_BYTES: usize = 240 * 1024;

/// Truncates a text to the bytes that are shown.
fn truncate(text: &str) -> &str {
    truncate_to(text, MAX_TEXT_BYTES)
}

fn truncate_to(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Writes the first items as a JSON list of at most `max_bytes`: a control character in a key takes
/// six of them.
fn list_within<T: Serialize>(
    max_bytes: usize,
    items: impl IntoIterator<Item = T>,
) -> Verbatim<'static> {
    // The end of the list takes one byte.
    let append =
        |text: &mut Vec<u8>, item: T| json::append_within(text, max_bytes.saturating_sub(1), &item);
    let (text, _) = json::list_while(items, append);
    Verbatim(
        String::from_utf8(text)
            .expect("JSON that serde writes is UTF-8")
            .into(),
    )
}

fn read<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, Problem> {
    if text.len() > MAX_BODY_BYTES {
        return Err(Problem::new(
            Code::PayloadTooLarge,
            format!("the body has more than {MAX_BODY_BYTES} bytes"),
        ));
    }
    body::read(text)
}

/// Problem of a failure of the limiter's store, which may have carried out the call.
fn without_store(error: &StoreError) -> Problem {
    Problem::new(
        Code::StoreUnavailable,
        format!("the store of rate limits: {error}"),
    )
}

/// Returns entries as pairs for JSON.
fn pairs(entries: &[Entry]) -> Vec<(&str, &str)> {
    entries
        .iter()
        .map(|entry| (&*entry.key, &*entry.value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_bounded_whatever_its_texts() {
        let check = |text: &str, expected: std::ops::RangeInclusive<usize>| {
            let Verbatim(list) = list_within(10_000, vec![text; 100]);
            let items: Vec<String> = serde_json::from_str(&list).unwrap();
            assert!(expected.contains(&items.len()) && list.len() <= 10_000);
        };
        check("x", 100..=100);
        check(&"\u{1}".repeat(10), 100..=100);
        check(&"\u{1}".repeat(256), 6..=6);
        check(&"x".repeat(9_996), 1..=1);
        check(&"x".repeat(9_997), 0..=0);
    }
}
