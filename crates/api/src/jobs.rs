//! Jobs of a workflow: list, show, and the actions of operators on one job.

pub(crate) mod claims;
pub(crate) mod leases;
pub(crate) mod log;
pub(crate) mod notes;
mod outcome;
mod params;
mod reasons;
pub(crate) mod reports;
mod selection;
mod waiting;

use hashbrown::{HashMap, HashSet};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::{
    Action, Condition, JobIndex, JobResult, JobState, Json, Snapshot, WaitReason, WorkflowId,
};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body::{self, NoBody};
use crate::http::json::{self, Verbatim};
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::state::app_state::{HandlerResult, RequestContext, with_read_timeout};
use crate::state::rate_limits::Pauses;
use crate::views::error_summary::ErrorSummary;
use crate::views::fair_lock::FairLock;
use crate::views::job::{Job, MAX_ANSWER_BYTES, is_long, too_long};
use crate::workflows::act::{RetryBody, apply_action, condition};
use outcome::check_output;
use reasons::{limited_jobs, with_reasons};
use selection::{JobQuery, Position};

/// Bytes after which a page takes no further job. A page has at least one job, whatever its size.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Most holders that are listed for a limit that a job waits for.
const MAX_HOLDERS: usize = 100;
/// Most holders in a list of jobs, where many jobs may wait for one limit.
const MAX_HOLDERS_IN_LIST: usize = 3;
/// Failed jobs whose errors one call of the store reads: at most 3 MiB.
const ERROR_BATCH: usize = 100;
/// Lock for pages that need a large workflow as a whole.
static PAGE_LOCK: FairLock = FairLock::new("pages of jobs of large workflows are gathered");

/// A page of jobs.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct JobPage<'a> {
    #[cfg_attr(test, schema(value_type = Vec<Job>))]
    items: Verbatim<'a>,
    /// The cursor of the next page; null when this is the last.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
}

/// Output that a job counts as having returned.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = MarkSucceeded))]
pub(crate) struct MarkSucceededBody<'a> {
    /// Any JSON of at most 1 MiB.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<serde_json::Value>))]
    output: Option<&'a RawValue>,
}

pub(crate) async fn list(request: &RequestContext<'_>) -> HandlerResult {
    let id = request.workflow()?;
    let mut query = Query::new(request.query)?;
    let job_query = JobQuery::parse(&mut query)?;
    query.finish()?;
    let limit = job_query.limit;
    if job_query.is_plain() {
        let (snapshot, selected) = select_plain_page(request, id, &job_query).await?;
        return answer_page(request, snapshot, selected, limit).await;
    }
    let _lock = if request.engine().is_large(id).await? {
        Some(PAGE_LOCK.acquire(&request.caller()).await?)
    } else {
        None
    };
    let (snapshot, selected) = select_filtered_page(request, id, job_query).await?;
    answer_page(request, snapshot, selected, limit).await
}

/// Snapshot of a workflow and the positions of the jobs that a page starts with: one more than the
/// page has, if there is one.
type JobSelection = (Snapshot, Vec<Position>);

/// Answers with a page of these jobs.
async fn answer_page(
    request: &RequestContext<'_>,
    snapshot: Snapshot,
    selected: Vec<Position>,
    limit: usize,
) -> HandlerResult {
    let jobs = selected.iter().take(limit).map(|position| position.job);
    let jobs: Vec<JobIndex> = jobs.collect();
    let snapshot = with_reasons(request, snapshot, &jobs, MAX_HOLDERS_IN_LIST).await?;
    let errors = last_errors(request, &snapshot, &jobs).await?;
    let is_long = is_long(&snapshot, jobs.iter().copied());
    let write = move || {
        let (items, number) = write_items(&snapshot, &jobs, &errors);
        if number == 0 && !jobs.is_empty() {
            return None;
        }
        let next_cursor = selected.get(number).map(Position::to_string);
        Some(json::ok(&JobPage {
            items: Verbatim::from_bytes(&items),
            next_cursor,
        }))
    };
    let page = if is_long {
        request.engine().run_blocking(write).await
    } else {
        write()
    };
    page.ok_or_else(too_long)
}

/// Reads the last errors of those of the jobs that have failed, and keeps the start of each.
async fn last_errors(
    request: &RequestContext<'_>,
    snapshot: &Snapshot,
    jobs: &[JobIndex],
) -> Result<HashMap<JobIndex, ErrorSummary>, Problem> {
    let failed = jobs.iter().copied();
    let failed = failed.filter(|&job| snapshot.job(job).state == JobState::Failed);
    let failed: Vec<JobIndex> = failed.collect();
    let mut summaries = HashMap::new();
    for batch in failed.chunks(ERROR_BATCH) {
        let errors = request.engine().last_errors(snapshot, batch).await?;
        for (&job, error) in batch.iter().zip(errors) {
            summaries.extend(error.map(|error| (job, ErrorSummary::new(&error))));
        }
    }
    Ok(summaries)
}

/// Writes jobs as a JSON list: all that fit, and at least one unless it is too long for any answer.
/// Returns the list and their number.
fn write_items(
    snapshot: &Snapshot,
    jobs: &[JobIndex],
    errors: &HashMap<JobIndex, ErrorSummary>,
) -> (Vec<u8>, usize) {
    let mut max_bytes_now = MAX_ANSWER_BYTES;
    json::list_while(jobs, |text, &index| {
        let job = Job::new(snapshot, index, None).with_error(errors.get(&index));
        let fits = json::append_within(text, max_bytes_now, &job);
        max_bytes_now = MAX_PAGE_BYTES;
        fits
    })
}

/// Reads a page of all jobs, and one job more if there is one.
async fn select_plain_page(
    request: &RequestContext<'_>,
    id: WorkflowId,
    query: &JobQuery,
) -> Result<JobSelection, Problem> {
    let some = request.engine().show_jobs(id, |graph| {
        let positions = query.plain_page(graph.jobs.len()).into_iter();
        positions
            .map(|position| position.job)
            .take(query.limit)
            .collect()
    });
    let snapshot = with_read_timeout(some).await?;
    let selected = query.plain_page(snapshot.graph().jobs.len());
    Ok((snapshot, selected))
}

/// Reads a page of jobs with a filter or in the order of attention. That needs all jobs of the
/// workflow, unless its counts show that none is in a wanted state.
async fn select_filtered_page(
    request: &RequestContext<'_>,
    id: WorkflowId,
    query: JobQuery,
) -> Result<JobSelection, Problem> {
    let engine = request.engine();
    let states = query.engine_states();
    let counts = engine.workflow_meta(id).await?.counts;
    if !states.is_empty() && states.iter().all(|word| counts.count_by_word(word) == 0) {
        return Ok((
            with_read_timeout(engine.show_jobs(id, |_| Vec::new())).await?,
            Vec::new(),
        ));
    }
    let snapshot = request.api.show(id).await?;
    let limited = if query.needs_limited() {
        limited_jobs(request, &snapshot).await?
    } else {
        HashSet::new()
    };
    let is_large = snapshot.is_large();
    let select = move || {
        let selected = query.select(&snapshot, &limited);
        (snapshot, selected)
    };
    Ok(if is_large {
        engine.run_blocking(select).await
    } else {
        select()
    })
}

/// Returns the index of the job that the path names.
fn find_job(snapshot: &Snapshot, name: &str) -> Result<JobIndex, Problem> {
    let none = || {
        Problem::new(
            Code::JobNotFound,
            format!("workflow {} has no job '{name}'", snapshot.id()),
        )
    };
    snapshot.graph().find(name).ok_or_else(none)
}

/// Writes a single job, if it is not too long.
fn job_text(
    snapshot: &Snapshot,
    index: JobIndex,
    result: &JobResult,
    pauses: &Pauses,
) -> Option<Vec<u8>> {
    let pause = match snapshot.why_not_running(index) {
        Some(WaitReason::LimitReached(full)) => pauses.of_limit(&full.limit),
        _ => None,
    };
    let job = Job::new(snapshot, index, Some(result)).with_pause(pause);
    json::text_within(MAX_ANSWER_BYTES, &job)
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let id = request.workflow()?;
    let name = request.matched.name(1)?;
    let snapshot = with_read_timeout(
        request
            .engine()
            .show_jobs(id, |graph| graph.find(&name).into_iter().collect()),
    )
    .await?;
    let index = find_job(&snapshot, &name)?;
    let snapshot = with_reasons(request, snapshot, &[index], MAX_HOLDERS).await?;
    let result = request
        .engine()
        .results(id, &[index])
        .await?
        .pop()
        .unwrap_or_default();
    let is_long = is_long(&snapshot, [index]);
    let pauses = Pauses::new(&request.api.hooks.limits);
    let write = move || job_text(&snapshot, index, &result, &pauses);
    let text = if is_long {
        request.engine().run_blocking(write).await
    } else {
        write()
    };
    Ok(json::answer_text(text.ok_or_else(too_long)?))
}

/// Applies an action without a body to the job that the path names.
pub(crate) async fn act(
    request: &RequestContext<'_>,
    action: fn(String) -> Action,
) -> HandlerResult {
    let job = request.matched.name(1)?;
    body::read_optional::<NoBody>(request.body)?;
    apply_action(request, action(job), Condition::default()).await
}

pub(crate) async fn mark_succeeded(request: &RequestContext<'_>) -> HandlerResult {
    let job = request.matched.name(1)?;
    let MarkSucceededBody { output } = body::read_optional(request.body)?;
    check_output(output)?;
    let output = output.map(|output| Json::from_checked(output.get()));
    let action = Action::MarkSucceeded { job, output };
    apply_action(request, action, Condition::default()).await
}

pub(crate) async fn retry(request: &RequestContext<'_>) -> HandlerResult {
    let job = request.matched.name(1)?;
    let RetryBody { as_of } = body::read_optional(request.body)?;
    apply_action(request, Action::RetryJob(job), condition(as_of)?).await
}
