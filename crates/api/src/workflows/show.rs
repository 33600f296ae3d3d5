//! View of one workflow, at once or after its end.

use std::time::Duration;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;
use tidegate_workflow::{EngineError, JobIndex, JobResult, Snapshot, WorkflowId};
use tokio::time::timeout;

use super::fair_lock::Turns;
use super::view::Workflow;
use crate::events::FeedVersion;
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::quota::{self, Reserved};
use crate::http::request::{Answer, AppState, RequestContext, in_time};
use crate::jobs::view::{MOST_TEXT, is_long, too_long};

/// Most bytes of outputs and errors in one answer.
const MOST_RESULTS: usize = 64 * 1024 * 1024;
/// Jobs whose results one call of the store reads: at most 16 MiB of outputs, and a third of that
/// of errors.
const RESULTS_AT_A_TIME: usize = 16;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Lock for answers with all outputs, or with all jobs of a large workflow. Such an answer takes up
/// to 64 MiB, and as much again as text. A waiting request holds nothing but its connection.
static TURNS: Turns =
    Turns::new("answers with all outputs, or with all jobs of a large workflow, are gathered");

/// Detail of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Summary,
    Jobs,
    Full,
}

pub(crate) async fn by_key(ask: &RequestContext<'_>) -> Answer {
    let mut query = Query::new(ask.query)?;
    let key = query
        .take("key")
        .ok_or_else(|| Problem::field("key", "expected the idempotency key of a workflow"))?;
    query.end()?;
    let none = || {
        Problem::new(
            Code::WorkflowNotFound,
            format!("no workflow has the idempotency key '{key}'"),
        )
    };
    let id = ask.api.engine().find_by_key(&key).await?.ok_or_else(none)?;
    Ok(json::ok(&Workflow::outlined(
        &in_time(ask.api.engine().outline(id)).await?,
    )))
}

pub(crate) async fn show(ask: &RequestContext<'_>) -> Answer {
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
            json::page(text(ask.api, engine.show(id).await?, None).await?)
        }
        View::Jobs | View::Full => in_turn(ask, id, view).await?,
    })
}

/// Answers with the workflow and its jobs, and with their results in the full view, under the lock.
async fn in_turn(ask: &RequestContext<'_>, id: WorkflowId, view: View) -> Answer {
    let _turn = TURNS.acquire(&ask.caller()).await?;
    let snapshot = ask.api.show(id).await?;
    let engine = ask.api.engine();
    let results = match view {
        View::Full => {
            let read = |jobs: Vec<JobIndex>| async move { engine.results(id, &jobs).await };
            Some(all_results(snapshot.jobs().len(), read).await?)
        }
        View::Summary | View::Jobs => None,
    };
    let text = text(ask.api, snapshot, results).await?;
    // The lock is held until the quota is reserved.
    let text = quota::reserve_text(&ask.api.rooms.answers, &ask.caller(), text).await?;
    Ok((
        Extension(Reserved),
        [(header::CONTENT_TYPE, "application/json")],
        text,
    )
        .into_response())
}

/// Writes the view of a workflow with its jobs. A long one is written on a blocking thread, so that
/// claims do not wait.
async fn text(
    api: &AppState,
    snapshot: Snapshot,
    results: Option<Vec<JobResult>>,
) -> Result<Vec<u8>, Problem> {
    /// Bytes of results that are written in a millisecond.
    const FEW: usize = 128 * 1024;
    let many = results.iter().flatten().map(size).sum::<usize>() > FEW;
    let long = many
        || is_long(
            &snapshot,
            (0..snapshot.jobs().len()).map(|at| JobIndex(at as u32)),
        );
    let write = move || {
        json::text_within(
            MOST_TEXT,
            &Workflow::with_jobs(&snapshot, results.as_deref()),
        )
    };
    let text = if long {
        api.engine().run_blocking(write).await
    } else {
        write()
    };
    text.ok_or_else(too_long)
}

/// Reads the results of all jobs in batches. Reading stops when they are too large for one answer.
async fn all_results<R: Future<Output = Result<Vec<JobResult>, EngineError>>>(
    jobs: usize,
    read: impl Fn(Vec<JobIndex>) -> R,
) -> Result<Vec<JobResult>, Problem> {
    let mut all = Vec::with_capacity(jobs);
    let mut bytes = 0;
    for from in (0..jobs).step_by(RESULTS_AT_A_TIME) {
        let some = (from..jobs.min(from + RESULTS_AT_A_TIME)).map(|at| JobIndex(at as u32));
        let results = read(some.collect()).await?;
        bytes += results.iter().map(size).sum::<usize>();
        if bytes > MOST_RESULTS {
            let detail = format!(
                "outputs and errors have more than {MOST_RESULTS} bytes; ask for jobs one by one"
            );
            return Err(Problem::new(Code::PayloadTooLarge, detail).at("view"));
        }
        all.extend(results);
    }
    Ok(all)
}

fn size(result: &JobResult) -> usize {
    let errors = result
        .errors
        .iter()
        .map(|error| error.message.len() + error.trace.as_ref().map_or(0, String::len));
    result.output.as_ref().map_or(0, |output| output.len()) + errors.sum::<usize>()
}

/// Returns when the workflow is over, the time has passed, or the server drains.
async fn settle(api: &AppState, id: WorkflowId, wait: Duration) -> Result<(), EngineError> {
    if !wait.is_zero() {
        // The subscription begins before the first read, so that no change falls between.
        let (_view, mut known) = api.follow(id);
        let seen = api.engine().glance(id).await?;
        if !seen.status.is_over() {
            let ended = |known: &FeedVersion| match *known {
                // An earlier version may be about an earlier end.
                FeedVersion::Version { version, over } => over && version > seen.version,
                FeedVersion::Removed => true,
            };
            tokio::select! {
                _ = timeout(wait, known.wait_for(ended)) => {}
                () = api.host.drain.cancelled() => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of three hundred outputs of a megabyte, 256 were read before the answer was refused as too
    /// large.
    #[tokio::test]
    async fn results_that_are_too_many_are_not_read_to_their_end() {
        let output = axum::body::Bytes::from(vec![b'1'; 1 << 20]);
        let most = std::cell::Cell::new(0);
        let read = |jobs: Vec<JobIndex>| {
            most.set(most.get() + jobs.len());
            let result = |_: &JobIndex| JobResult {
                output: Some(output.clone()),
                ..JobResult::default()
            };
            std::future::ready(Ok(jobs.iter().map(result).collect()))
        };
        let problem = all_results(300, &read).await.unwrap_err();
        assert_eq!(
            problem.word(),
            Problem::new(Code::PayloadTooLarge, "").word()
        );
        assert!(most.get() <= 80, "{} MiB were read", most.get());
        assert_eq!(all_results(50, &read).await.unwrap().len(), 50);
    }
}
