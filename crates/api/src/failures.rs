//! Failures that are no fault of the client: a request with any of them has one line in the log, and counts once.

use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use tracing::{error, warn};

use crate::activity::{Activity, Event};
use crate::edge::ask::{Ask, Context};
use crate::edge::problem::{Code, Problem};
use crate::edge::request_id::RequestId;

/// Notes a request that was answered with this problem.
pub(crate) fn request(api: &Context, id: &RequestId, head: &Parts, problem: &Problem) {
    count(&api.activity, [problem]);
    let (id, method, path) = (id.text(), &head.method, head.uri.path());
    let (status, code, detail) = (problem.status(), problem.word(), problem.detail());
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        error!(request_id = id, %method, path, code, detail, "a request failed");
    } else if status.is_server_error() {
        warn!(request_id = id, %method, path, code, detail, "a request was not served");
    }
}

/// Notes a request that was answered, but some of whose items have these problems.
///
/// The log gets the number of those that are no fault of the client, and the first of them. A line for each would let one
/// caller fill the log.
pub(crate) fn items<'a>(ask: &Ask<'_>, problems: impl Iterator<Item = &'a Problem>) {
    let failed: Vec<&Problem> = problems.filter(|problem| problem.status().is_server_error()).collect();
    count(&ask.api.activity, failed.iter().copied());
    // A fault of the server must not hide behind a store that is away.
    let fault = failed.iter().find(|problem| problem.status() == StatusCode::INTERNAL_SERVER_ERROR);
    let Some(first) = fault.or(failed.first()) else { return };
    // No call with items has a name in its path: the template is the path.
    let (id, method, path): (_, &Method, _) = (ask.id.text(), &ask.matched.route.method, ask.matched.route.template);
    let (items, code, detail) = (failed.len(), first.word(), first.detail());
    if fault.is_some() {
        error!(request_id = id, %method, path, items, code, detail, "items of a request failed");
    } else {
        warn!(request_id = id, %method, path, items, code, detail, "items of a request were not served");
    }
}

/// Counts a request if the store is to blame for one of its problems.
fn count<'a>(activity: &Activity, problems: impl IntoIterator<Item = &'a Problem>) {
    if problems.into_iter().any(|problem| matches!(problem.code, Code::StoreUnavailable | Code::Internal)) {
        activity.add(Event::StoreError, 1);
    }
}
