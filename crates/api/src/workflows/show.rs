//! View of one workflow, at once or after its end.

use std::time::Duration;

use tidegate_workflow::{EngineError, JobIndex, JobResult, Snapshot, WorkflowId};
use tokio::time::timeout;

use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;

use crate::state::app_state::{AppState, HandlerResult, RequestContext, with_read_timeout};
use crate::state::feeds::FeedVersion;
use crate::views::fair_lock::FairLock;
use crate::views::job::{MAX_ANSWER_BYTES, is_long, too_long};
use crate::views::workflow::Workflow;

/// Most bytes of outputs and errors in one answer.
const MAX_RESULT_BYTES: usize = 64 * 1024 * 1024;
/// Jobs whose results one call of the store reads: at most 16 MiB of outputs, and a third of that
/// of errors.
const RESULT_BATCH: usize = 16;
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Lock for answers with all outputs, or with all jobs of a large workflow. Such an answer takes up
/// to 64 MiB, and as much again as text. A waiting request holds nothing but its connection.
static LARGE_ANSWER_LOCK: FairLock =
    FairLock::new("answers with all outputs, or with all jobs of a large workflow, are gathered");

/// Detail of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DetailLevel {
    Summary,
    Jobs,
    Full,
}

pub(crate) async fn by_key(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let key = query
        .remove("key")
        .ok_or_else(|| Problem::field("key", "expected the idempotency key of a workflow"))?;
    query.finish()?;
    let none = || {
        Problem::new(
            Code::WorkflowNotFound,
            format!("no workflow has the idempotency key '{key}'"),
        )
    };
    let id = request.engine().find_by_key(&key).await?.ok_or_else(none)?;
    Ok(json::ok(&Workflow::from_summary(
        &with_read_timeout(request.engine().workflow_summary(id)).await?,
    )))
}

impl DetailLevel {
    fn from_query(query: &mut Query) -> Result<Self, Problem> {
        match query.remove("view").as_deref() {
            None | Some("summary") => Ok(Self::Summary),
            Some("jobs") => Ok(Self::Jobs),
            Some("full") => Ok(Self::Full),
            Some(_) => Err(Problem::field("view", "expected summary, jobs or full")),
        }
    }
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let id = request.workflow()?;
    let mut query = Query::new(request.query)?;
    let view = DetailLevel::from_query(&mut query)?;
    let wait = query.duration("wait", MAX_WAIT)?.unwrap_or_default();
    query.finish()?;
    wait_for_end(request.api, id, wait).await?;
    let engine = request.engine();
    Ok(match view {
        DetailLevel::Summary => json::ok(&Workflow::from_summary(
            &with_read_timeout(engine.workflow_summary(id)).await?,
        )),
        DetailLevel::Jobs if !engine.is_large(id).await? => {
            json::answer_text(write_view(request.api, engine.show(id).await?, None).await?)
        }
        DetailLevel::Jobs | DetailLevel::Full => show_exclusively(request, id, view).await?,
    })
}

/// Answers with the workflow and its jobs, and with their results in the full view, under the lock.
async fn show_exclusively(
    request: &RequestContext<'_>,
    id: WorkflowId,
    view: DetailLevel,
) -> HandlerResult {
    let _lock = LARGE_ANSWER_LOCK.acquire(&request.caller()).await?;
    let snapshot = request.api.show(id).await?;
    let engine = request.engine();
    let results = match view {
        DetailLevel::Full => {
            let read = |jobs: Vec<JobIndex>| async move { engine.results(id, &jobs).await };
            Some(all_results(snapshot.jobs().len(), read).await?)
        }
        DetailLevel::Summary | DetailLevel::Jobs => None,
    };
    let text = write_view(request.api, snapshot, results).await?;
    // The lock is held until the quota is reserved.
    request.answer_reserved("application/json", text).await
}

/// Writes the view of a workflow with its jobs. A long one is written on a blocking thread, so that
/// claims do not wait.
async fn write_view(
    api: &AppState,
    snapshot: Snapshot,
    results: Option<Vec<JobResult>>,
) -> Result<Vec<u8>, Problem> {
    /// Bytes of results that are written in a millisecond.
    const MAX_FAST_BYTES: usize = 128 * 1024;
    let has_many_results =
        results.iter().flatten().map(result_bytes).sum::<usize>() > MAX_FAST_BYTES;
    let is_slow = has_many_results
        || is_long(
            &snapshot,
            (0..snapshot.jobs().len()).map(|at| JobIndex(at as u32)),
        );
    let write = move || {
        json::text_within(
            MAX_ANSWER_BYTES,
            &Workflow::with_jobs(&snapshot, results.as_deref()),
        )
    };
    let text = if is_slow {
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
    for from in (0..jobs).step_by(RESULT_BATCH) {
        let batch = (from..jobs.min(from + RESULT_BATCH)).map(|at| JobIndex(at as u32));
        let results = read(batch.collect()).await?;
        bytes += results.iter().map(result_bytes).sum::<usize>();
        if bytes > MAX_RESULT_BYTES {
            let detail = format!(
                "outputs and errors have more than {MAX_RESULT_BYTES} bytes; ask for jobs one by one"
            );
            return Err(Problem::new(Code::PayloadTooLarge, detail).at("view"));
        }
        all.extend(results);
    }
    Ok(all)
}

fn result_bytes(result: &JobResult) -> usize {
    let errors = result
        .errors
        .iter()
        .map(|error| error.message.len() + error.trace.as_ref().map_or(0, String::len));
    result.output.as_ref().map_or(0, |output| output.len()) + errors.sum::<usize>()
}

/// Returns when the workflow is over, the time has passed, or the server drains.
async fn wait_for_end(api: &AppState, id: WorkflowId, wait: Duration) -> Result<(), EngineError> {
    if !wait.is_zero() {
        // The subscription begins before the first read, so that no change falls between.
        let (_feed, mut versions) = api.follow(id);
        let meta = api.engine().workflow_meta(id).await?;
        if !meta.status.is_over() {
            let ended = |versions: &FeedVersion| match *versions {
                // An earlier version may be about an earlier end.
                FeedVersion::Version {
                    version,
                    has_ended: over,
                } => over && version > meta.version,
                FeedVersion::Removed => true,
            };
            tokio::select! {
                _ = timeout(wait, versions.wait_for(ended)) => {}
                () = api.hooks.drain.cancelled() => {}
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
