//! Logs decisions at LOG_LEVEL=debug, to explain why a request was refused.

use std::fmt::Write as _;

use tidegate_ratelimit::{Error, Request, Response};
use tracing::{Level, debug, enabled};

/// Limit of characters of a name that a client chose.
const MOST: usize = 100;

/// Logs one decision at the debug level. Values of descriptors are omitted: they may be tokens or
/// personal addresses.
#[inline]
pub(crate) fn log(request: &Request, response: &Result<Response, Error>) {
    if enabled!(Level::DEBUG) {
        write(request, response);
    }
}

#[cold]
fn write(request: &Request, response: &Result<Response, Error>) {
    let domain = cut(&request.domain);
    match response {
        Ok(response) => {
            // The debug format escapes line breaks.
            debug!(domain = ?domain, code = ?response.code, descriptors = ?descriptors(request, response), "decision");
        }
        Err(error) => debug!(domain = ?domain, %error, "no decision"),
    }
}

/// For each descriptor its keys, the decision, and the remaining hits.
fn descriptors(request: &Request, response: &Response) -> String {
    let mut text = String::new();
    for (descriptor, status) in request.descriptors.iter().zip(&response.statuses) {
        let keys: Vec<_> = descriptor
            .entries
            .iter()
            .map(|entry| cut(&entry.key))
            .collect();
        // Writing to a string cannot fail.
        let _ = write!(text, "[{}: {:?}", keys.join(","), status.code);
        if let Some(limit) = &status.limit {
            let _ = write!(
                text,
                ", {} of {} a {:?} left",
                status.remaining, limit.requests_per_unit, limit.unit
            );
        }
        text.push(']');
    }
    text
}

fn cut(name: &str) -> &str {
    name.char_indices()
        .nth(MOST)
        .map_or(name, |(end, _)| &name[..end])
}
