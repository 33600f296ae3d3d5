//! Failures that are no fault of the client: they are logged, once a minute for each code, and each request with any of them counts once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::request::Parts;
use tidegate_workflow::Timestamp;
use tracing::{error, warn};

use crate::http::problem::{Code, Problem};
use crate::http::request::{AppState, RequestContext};
use crate::http::request_id::RequestId;
use crate::metrics::{Activity, Event};

/// Least time between two lines with the same code: a store that does not answer fails all calls for the same reason.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// The time of the last line of each code, and how many lines were left out since. Without it one client could fill the log.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<&'static str, (Timestamp, u64)>>);

impl Lines {
    /// Whether there may be a line for `code` now; with the number of those that were left out since the last one.
    fn turn(&self, code: &'static str, now: Timestamp) -> Option<u64> {
        // Each change is complete or absent.
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.get_mut(code) {
            // A clock that was set back does not suppress lines.
            Some((last, left_out)) if *last <= now && now.since(*last) < LINE_INTERVAL => {
                *left_out += 1;
                None
            }
            known => {
                let left_out = known.map_or(0, |(_, left_out)| *left_out);
                lines.insert(code, (now, 0));
                Some(left_out)
            }
        }
    }
}

/// Notes a request that was answered with this problem.
pub(crate) fn request(api: &AppState, id: &RequestId, head: &Parts, problem: &Problem) {
    count(&api.activity, [problem]);
    let status = problem.status();
    let code = problem.word();
    if !status.is_server_error() {
        return;
    }
    let Some(suppressed) = api.failures.turn(code, api.now()) else {
        return;
    };
    let id = id.text();
    let method = &head.method;
    let path = head.uri.path();
    let detail = problem.detail();
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        error!(request_id = id, %method, path, code, detail, suppressed, "a request failed");
    } else {
        warn!(request_id = id, %method, path, code, detail, suppressed, "a request was not served");
    }
}

/// Notes a request that was answered, but some of whose items have these problems.
///
/// The log gets the number of those that are no fault of the client, and the first of them. A line for each would let one
/// caller fill the log.
pub(crate) fn items<'a>(ask: &RequestContext<'_>, problems: impl Iterator<Item = &'a Problem>) {
    let failed: Vec<&Problem> = problems
        .filter(|problem| problem.status().is_server_error())
        .collect();
    count(&ask.api.activity, failed.iter().copied());
    // A fault of the server must not hide behind a store that is away.
    let fault = failed
        .iter()
        .find(|problem| problem.status() == StatusCode::INTERNAL_SERVER_ERROR);
    let Some(first) = fault.or(failed.first()) else {
        return;
    };
    let items = failed.len();
    let code = first.word();
    let detail = first.detail();
    let Some(suppressed) = ask.api.failures.turn(code, ask.api.now()) else {
        return;
    };
    // No call with items has a name in its path: the template is the path.
    let id = ask.id.text();
    let method = &ask.matched.route.method;
    let path = ask.matched.route.template;
    if fault.is_some() {
        error!(request_id = id, %method, path, items, code, detail, suppressed, "items of a request failed");
    } else {
        warn!(request_id = id, %method, path, items, code, detail, suppressed, "items of a request were not served");
    }
}

/// Counts a request if the store is to blame for one of its problems, or the lack of room.
fn count<'a>(activity: &Activity, problems: impl IntoIterator<Item = &'a Problem>) {
    let mut store = false;
    let mut room = false;
    for problem in problems {
        store |= matches!(problem.code, Code::StoreUnavailable | Code::Internal);
        room |= problem.code == Code::Overloaded;
    }
    activity.add(Event::StoreError, store.into());
    activity.add(Event::Overloaded, room.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_a_line_a_minute_and_the_next_one_says_how_many_were_left_out() {
        let lines = Lines::default();
        let check = |seconds: u64, code, expected| {
            assert_eq!(
                lines.turn(code, Timestamp::from_micros(seconds * 1_000_000)),
                expected,
                "{seconds} {code}"
            );
        };
        check(100, "overloaded", Some(0));
        check(101, "overloaded", None);
        check(101, "internal", Some(0));
        check(159, "overloaded", None);
        check(160, "overloaded", Some(2));
        check(161, "overloaded", None);
        check(30, "overloaded", Some(1));
        check(89, "overloaded", None);
        check(500, "overloaded", Some(1));
    }
}
