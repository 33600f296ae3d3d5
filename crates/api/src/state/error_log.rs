//! Log of failures that are no fault of the client. Each code has one line a minute, and each
//! failed request counts once.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::request::Parts;
use tidegate_workflow::Timestamp;
use tracing::{error, warn};

use super::metrics::{ApiMetrics, CountedEvent};
use crate::http::lock;
use crate::http::problem::{Code, Problem};
use crate::http::request_id::RequestId;
use crate::state::app_state::{AppState, RequestContext};

/// Shortest time between two lines with the same code: a store that does not answer fails all calls
/// for the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Time of the last line of each code, and the number of lines left out since. Without this limit
/// one client could fill the log.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<HashMap<&'static str, (Timestamp, u64)>>);

impl LogThrottle {
    /// Returns the number of lines left out since the last one if `code` may have a line now.
    fn reserve_line(&self, code: &'static str, now: Timestamp) -> Option<u64> {
        let mut lines = lock(&self.0);
        match lines.get_mut(code) {
            // A clock that was set back does not suppress lines.
            Some((last, left_out)) if *last <= now && now.since(*last) < LOG_INTERVAL => {
                *left_out += 1;
                None
            }
            previous => {
                let left_out = previous.map_or(0, |(_, left_out)| *left_out);
                lines.insert(code, (now, 0));
                Some(left_out)
            }
        }
    }
}

/// Counts and logs a request that was answered with this problem.
pub(crate) fn log_problem(api: &AppState, id: &RequestId, head: &Parts, problem: &Problem) {
    count_store_errors(&api.metrics, [problem]);
    let status = problem.status();
    let code = problem.word();
    if !status.is_server_error() {
        return;
    }
    let Some(suppressed) = api.error_log.reserve_line(code, api.now()) else {
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

/// Counts and logs a request that was answered, but some of whose items have these problems.
///
/// The line has the number of items that failed without a fault of the client, and the first of
/// these problems. A line for each item would let one caller fill the log.
pub(crate) fn log_item_problems<'a>(
    request: &RequestContext<'_>,
    problems: impl Iterator<Item = &'a Problem>,
) {
    let server_errors: Vec<&Problem> = problems
        .filter(|problem| problem.status().is_server_error())
        .collect();
    count_store_errors(&request.api.metrics, server_errors.iter().copied());
    // A fault of the server must not hide behind a store that is unavailable.
    let fault = server_errors.iter().find(|problem| is_fault(problem));
    let Some(first) = fault.or(server_errors.first()) else {
        return;
    };
    let items = server_errors.len();
    let code = first.word();
    let detail = first.detail();
    let Some(suppressed) = request.api.error_log.reserve_line(code, request.now()) else {
        return;
    };
    // No call with items has a name in its path: the template is the path.
    let id = request.id.text();
    let method = &request.matched.route.method;
    let path = request.matched.route.template;
    if fault.is_some() {
        error!(request_id = id, %method, path, items, code, detail, suppressed, "items of a request failed");
    } else {
        warn!(request_id = id, %method, path, items, code, detail, suppressed, "items of a request were not served");
    }
}

fn is_fault(problem: &Problem) -> bool {
    problem.status() == StatusCode::INTERNAL_SERVER_ERROR
}

/// Counts a request as a store error, as overload, or as both, by its problems.
fn count_store_errors<'a>(activity: &ApiMetrics, problems: impl IntoIterator<Item = &'a Problem>) {
    let mut store = false;
    let mut room = false;
    for problem in problems {
        store |= matches!(problem.code, Code::StoreUnavailable | Code::Internal);
        room |= problem.code == Code::Overloaded;
    }
    activity.add(CountedEvent::StoreError, store.into());
    activity.add(CountedEvent::Overloaded, room.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_a_line_a_minute_with_the_number_left_out() {
        let lines = LogThrottle::default();
        let check = |seconds: u64, code, expected| {
            assert_eq!(
                lines.reserve_line(code, Timestamp::from_micros(seconds * 1_000_000)),
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
