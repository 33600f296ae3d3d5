//! Showing one workflow, at once or when it is over.

use std::time::Duration;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;
use tidegate_workflow::{EngineError, JobIndex, JobResult, Snapshot, WorkflowId};
use tokio::time::timeout;

use super::turns::Turns;
use super::view::Workflow;
use crate::edge::ask::{Answer, Ask, Context, in_time};
use crate::edge::json;
use crate::edge::problem::{Code, Problem};
use crate::edge::query::Query;
use crate::edge::room::{self, HasRoom};
use crate::events::Known;

/// Most bytes of outputs and errors in one answer.
const MOST_RESULTS: usize = 64 * 1024 * 1024;
/// Jobs whose results are read with one call of the store.
const RESULTS_AT_A_TIME: usize = 256;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// One answer with all jobs of a large workflow, or with all outputs, is gathered at a time, since it may take 64 MiB and as much again as
/// text. Whoever waits holds nothing but a connection.
static TURNS: Turns = Turns::new("answers with all outputs, or with all jobs of a large workflow, are gathered");

/// How much of a workflow is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Summary,
    Jobs,
    Full,
}

pub(crate) async fn by_key(ask: &Ask<'_>) -> Answer {
    let mut query = Query::new(ask.query)?;
    let key = query.take("key").ok_or_else(|| Problem::field("key", "expected the idempotency key of a workflow"))?;
    query.end()?;
    let none = || Problem::new(Code::WorkflowNotFound, format!("no workflow has the idempotency key '{key}'"));
    let id = ask.api.engine().find_by_key(&key).await?.ok_or_else(none)?;
    Ok(json::ok(&Workflow::outlined(&in_time(ask.api.engine().outline(id)).await?)))
}

pub(crate) async fn show(ask: &Ask<'_>) -> Answer {
    let id = ask.workflow()?;
    let mut query = Query::new(ask.query)?;
    let view = match query.take("view").as_deref() {
        None | Some("summary") => View::Summary,
        Some("jobs") => View::Jobs,
        Some("full") => View::Full,
        Some(_) => return Err(Problem::field("view", "expected summary, jobs or full")),
    };
    let wait = query.span("wait", LONGEST_WAIT)?.unwrap_or_default();
    query.end()?;
    settle(ask.api, id, wait).await?;
    let engine = ask.api.engine();
    Ok(match view {
        View::Summary => json::ok(&Workflow::outlined(&in_time(engine.outline(id)).await?)),
        View::Jobs if !engine.is_large(id).await? => {
            let text = text(ask.api, engine.show(id).await?, None).await;
            ([(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        View::Jobs | View::Full => in_turn(ask, id, view).await?,
    })
}

/// The workflow with its jobs, and with what they left behind where that is wanted.
async fn in_turn(ask: &Ask<'_>, id: WorkflowId, view: View) -> Answer {
    let _turn = TURNS.take(&ask.caller()).await?;
    let snapshot = ask.api.show(id).await?;
    let results = match view {
        View::Full => Some(all_results(ask.api, id, snapshot.jobs().len()).await?),
        View::Summary | View::Jobs => None,
    };
    let text = text(ask.api, snapshot, results).await;
    // The next one is gathered when this one is on its way.
    let text = room::keep(&ask.api.rooms.answers, &ask.caller(), text).await?;
    Ok((Extension(HasRoom), [(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The view of a workflow with its jobs. A long one is written apart, so that claims do not wait for it.
async fn text(api: &Context, snapshot: Snapshot, results: Option<Vec<JobResult>>) -> Vec<u8> {
    /// Jobs whose states are written in a millisecond, and what they left behind.
    const SHORT: usize = 1_000;
    const FEW: usize = 128 * 1024;
    let few = results.iter().flatten().map(size).sum::<usize>() <= FEW;
    let short = snapshot.jobs().len() <= SHORT && few;
    let write = move || json::text(&Workflow::with_jobs(&snapshot, results.as_deref()));
    if short { write() } else { api.engine().apart(write).await }
}

/// What all jobs left behind, read in parts, so that what is too much for one answer is not gathered first.
async fn all_results(api: &Context, id: WorkflowId, jobs: usize) -> Result<Vec<JobResult>, Problem> {
    let jobs: Vec<JobIndex> = (0..jobs).map(|at| JobIndex(at as u32)).collect();
    let mut all = Vec::with_capacity(jobs.len());
    let mut bytes = 0;
    for some in jobs.chunks(RESULTS_AT_A_TIME) {
        let results = api.engine().results(id, some).await?;
        bytes += results.iter().map(size).sum::<usize>();
        if bytes > MOST_RESULTS {
            let detail = format!("outputs and errors have more than {MOST_RESULTS} bytes; ask for jobs one by one");
            return Err(Problem::new(Code::PayloadTooLarge, detail).at("view"));
        }
        all.extend(results);
    }
    Ok(all)
}

fn size(result: &JobResult) -> usize {
    let errors = result.errors.iter().map(|error| error.message.len() + error.trace.as_ref().map_or(0, String::len));
    result.output.as_ref().map_or(0, |output| output.len()) + errors.sum::<usize>()
}

/// Returns when the workflow is over, the time has passed, or the server drains.
async fn settle(api: &Context, id: WorkflowId, wait: Duration) -> Result<(), EngineError> {
    if !wait.is_zero() {
        // Before the first look, so that nothing falls between.
        let (_view, mut known) = api.follow(id);
        let seen = api.engine().glance(id).await?;
        if !seen.status.is_over() {
            let ended = |known: &Known| match *known {
                // What was learned before may be about an earlier end.
                Known::Version { version, over } => over && version > seen.version,
                Known::Removed => true,
            };
            tokio::select! {
                _ = timeout(wait, known.wait_for(ended)) => {}
                () = api.host.drain.cancelled() => {}
            }
        }
    }
    Ok(())
}
