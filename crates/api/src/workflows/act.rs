//! Actions of operators on one workflow.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{Action, Condition, RestartScope, Timestamp};
#[cfg(test)]
use utoipa::ToSchema;

use super::definition::RetentionBody;
use crate::http::body::{self, NoBody};
use crate::http::enum_text::StatusWord;
use crate::http::json::{self, Id};
use crate::http::problem::Problem;
use crate::http::time;
use crate::state::app_state::{HandlerResult, RequestContext};

/// The workflow to which something was done.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Done))]
pub(crate) struct ActionAnswer {
    id: Id,
    /// State of the workflow now.
    status: StatusWord,
    /// Whether there was nothing left to do: it was so already.
    already: bool,
}

/// Which jobs to retry.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Retry))]
pub(crate) struct RetryBody {
    /// Only jobs that ended by then; those that ended later have run again since. With it, the call can be sent twice.
    #[cfg_attr(test, schema(format = DateTime))]
    pub(crate) as_of: Option<String>,
}

/// Returns the condition of an action on the jobs that ended by a time, if one is given.
pub(crate) fn condition(as_of: Option<String>) -> Result<Condition, Problem> {
    Ok(Condition {
        as_of: time_field(as_of, "as_of", time::parse_range_end)?,
        ..Condition::default()
    })
}

/// Reads the time of a field, if it is given.
pub(super) fn time_field(
    text: Option<String>,
    path: &str,
    parse: fn(&str) -> Option<Timestamp>,
) -> Result<Option<Timestamp>, Problem> {
    let wrong = || Problem::field(path, "expected a time such as 2026-11-21T12:00:00Z");
    text.map(|text| parse(&text).ok_or_else(wrong)).transpose()
}

/// Jobs to run again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Restart))]
pub(crate) struct RestartBody {
    /// Names of jobs that have ended.
    #[cfg_attr(test, schema(min_items = 1))]
    jobs: Vec<String>,
    /// Whether the jobs after them run again, too.
    cascade: Option<bool>,
    /// Only jobs that ended by then; those that ended later have run again since. With it, the call can be sent twice.
    #[cfg_attr(test, schema(format = DateTime))]
    as_of: Option<String>,
}

/// How long to keep a workflow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Expire))]
pub(crate) struct ExpireBody {
    /// How long after its end, or from now on when it has ended.
    after: RetentionBody,
}

/// Applies an action without a body.
pub(crate) async fn act(request: &RequestContext<'_>, action: Action) -> HandlerResult {
    body::read_optional::<NoBody>(request.body)?;
    apply_action(request, action, Condition::default()).await
}

pub(crate) async fn retry(request: &RequestContext<'_>) -> HandlerResult {
    let RetryBody { as_of } = body::read_optional(request.body)?;
    apply_action(request, Action::RetryFailed, condition(as_of)?).await
}

pub(crate) async fn restart(request: &RequestContext<'_>) -> HandlerResult {
    let RestartBody {
        jobs,
        cascade,
        as_of,
    } = body::read(request.body)?;
    if jobs.is_empty() {
        return Err(Problem::field("jobs", "expected at least one name"));
    }
    let scope = if cascade == Some(true) {
        RestartScope::AndDescendants
    } else {
        RestartScope::Chosen
    };
    apply_action(request, Action::Restart { jobs, scope }, condition(as_of)?).await
}

pub(crate) async fn expire(request: &RequestContext<'_>) -> HandlerResult {
    let ExpireBody { after } = body::read(request.body)?;
    apply_action(request, Action::Keep(after.0), Condition::default()).await
}

pub(crate) async fn delete(request: &RequestContext<'_>) -> HandlerResult {
    body::read_optional::<NoBody>(request.body)?;
    request
        .engine()
        .act(request.workflow()?, Action::Delete, request.now())
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Applies an action, and answers with the state of the workflow after it.
pub(crate) async fn apply_action(
    request: &RequestContext<'_>,
    action: Action,
    condition: Condition,
) -> HandlerResult {
    let id = request.workflow()?;
    let result = request
        .engine()
        .act_if(id, action, condition, request.now())
        .await?;
    Ok(json::ok(&ActionAnswer {
        id: Id(id),
        status: result.status.into(),
        already: result.already_done,
    }))
}
