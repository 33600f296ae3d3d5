//! Limits: their configuration and overrides, checks without a charge, top keys, and waiting jobs.

pub(crate) mod check;
pub(crate) mod configuration;
pub(crate) mod overrides;
pub(crate) mod refusals;
pub(crate) mod top;
pub(crate) mod waiting;

use serde::Deserialize;
use tidegate_ratelimit::{Entry, StoreError};

use crate::http::body;
use crate::http::problem::{Code, Problem};

/// Largest body of these calls, in bytes. Its parsed form takes some thirty times as much memory.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Most bytes of one text of a configuration in an answer. It may have longer ones.
const MAX_TEXT_BYTES: usize = 400;

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
