//! What operators do to one workflow.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{Action, RestartScope};
#[cfg(test)]
use utoipa::ToSchema;

use super::definition::RetentionBody;
use crate::edge::ask::{Answer, Ask};
use crate::edge::body::{self, NoBody};
use crate::edge::json::{self, Id};
use crate::edge::problem::Problem;
use crate::edge::route::WorkflowAction;
use crate::edge::words::StatusWord;

/// The workflow to which something was done.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Done {
    id: Id,
    /// What it is doing now.
    status: StatusWord,
}

/// Jobs to run again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Restart))]
pub(crate) struct RestartBody {
    /// Names of jobs that have ended.
    #[cfg_attr(test, schema(min_items = 1))]
    jobs: Vec<String>,
    /// Whether the jobs after them run again, too.
    cascade: Option<bool>,
}

/// How long to keep a workflow.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Expire))]
pub(crate) struct ExpireBody {
    /// How long after its end, or from now on when it has ended.
    after: RetentionBody,
}

/// The action that a word of the path stands for.
pub(crate) fn action(word: WorkflowAction) -> Action {
    match word {
        WorkflowAction::Start => Action::Start,
        WorkflowAction::Cancel => Action::Cancel,
        WorkflowAction::Pause => Action::Pause,
        WorkflowAction::Resume => Action::Resume,
        WorkflowAction::Retry => Action::RetryFailed,
    }
}

pub(crate) async fn act(ask: &Ask<'_>, word: WorkflowAction) -> Answer {
    body::read_optional::<NoBody>(ask.body)?;
    done(ask, action(word)).await
}

pub(crate) async fn restart(ask: &Ask<'_>) -> Answer {
    let RestartBody { jobs, cascade } = body::read(ask.body)?;
    if jobs.is_empty() {
        return Err(Problem::field("jobs", "expected at least one name"));
    }
    let scope = if cascade == Some(true) { RestartScope::AndDescendants } else { RestartScope::Chosen };
    done(ask, Action::Restart { jobs, scope }).await
}

pub(crate) async fn expire(ask: &Ask<'_>) -> Answer {
    let ExpireBody { after } = body::read(ask.body)?;
    done(ask, Action::Keep(after.0)).await
}

pub(crate) async fn delete(ask: &Ask<'_>) -> Answer {
    body::read_optional::<NoBody>(ask.body)?;
    ask.api.engine().act(ask.workflow()?, Action::Delete, ask.api.now()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Does it, and says what the workflow is doing then.
pub(crate) async fn done(ask: &Ask<'_>, action: Action) -> Answer {
    let id = ask.workflow()?;
    let status = ask.api.engine().act(id, action, ask.api.now()).await?;
    Ok(json::ok(&Done { id: Id(id), status: status.into() }))
}
