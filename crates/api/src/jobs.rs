//! Jobs of a workflow: list, show, and the actions of operators on one job.

pub(crate) mod claims;
pub(crate) mod leases;
pub(crate) mod log;
pub(crate) mod notes;
mod outcome;
mod params;
mod reasons;
pub(crate) mod reports;
pub(crate) mod view;
mod waiting;
pub(crate) mod why;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::{Action, Condition, JobIndex, JobState, Json, Snapshot, WorkflowId};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body::{self, NoBody};
use crate::http::json::{self, Verbatim};
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::request::{Answer, RequestContext, in_time};
use crate::workflows::act::{RetryBody, done};
use crate::workflows::fair_lock::Turns;
use crate::workflows::list::MOST_ITEMS;
use outcome::check_output;
use reasons::with_reasons;
use view::{Job, MOST_TEXT, is_long, too_long};

/// Bytes after which a page takes no further job. A page has at least one job, whatever its size.
const MOST_PAGE: usize = 8 * 1024 * 1024;
/// Most holders that are listed for a limit that a job waits for.
const MOST_HOLDERS: usize = 100;
/// Most holders in a list of jobs, where many jobs may wait for one limit.
const FEW_HOLDERS: usize = 3;
/// Lock for pages that need a large workflow as a whole.
static TURNS: Turns = Turns::new("pages of jobs in some states of large workflows are gathered");

/// A page of jobs, in the order of the definition.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct JobPage<'a> {
    #[cfg_attr(test, schema(value_type = Vec<Job>))]
    items: Verbatim<'a>,
    /// The cursor of the next page; null when this is the last.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
}

/// Output that a job counts as having returned.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = MarkSucceeded))]
pub(crate) struct MarkBody<'a> {
    /// Any JSON of at most 1 MiB.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<serde_json::Value>))]
    output: Option<&'a RawValue>,
}

pub(crate) async fn list(ask: &RequestContext<'_>) -> Answer {
    let id = ask.workflow()?;
    let mut query = Query::new(ask.query)?;
    let state = query.take("state");
    let words = states(state.as_deref())?;
    let limit = query.limit(100, MOST_ITEMS)?;
    let from = match query.take("cursor") {
        Some(text) => {
            let wrong = |_| {
                Problem::new(
                    Code::InvalidCursor,
                    "the cursor must be the next_cursor of a page of jobs",
                )
            };
            text.parse().map_err(wrong)?
        }
        None => 0_usize,
    };
    query.end()?;
    if words.is_empty() {
        let (snapshot, wanted) = page(ask, id, from, limit).await?;
        return written(ask, snapshot, wanted, limit).await;
    }
    let large = ask.api.engine().is_large(id).await?;
    let _turn = if large {
        Some(TURNS.acquire(&ask.caller()).await?)
    } else {
        None
    };
    let (snapshot, wanted) = page_of(ask, id, &words, from, limit).await?;
    written(ask, snapshot, wanted, limit).await
}

/// Snapshot of a workflow and the jobs that a page starts with: one more than the page has, if
/// there is one.
type Found = (Snapshot, Vec<JobIndex>);

/// Answers with a page of these jobs.
async fn written(
    ask: &RequestContext<'_>,
    snapshot: Snapshot,
    wanted: Vec<JobIndex>,
    limit: usize,
) -> Answer {
    let snapshot = with_reasons(
        ask,
        snapshot,
        &wanted[..wanted.len().min(limit)],
        FEW_HOLDERS,
    )
    .await?;
    let long = is_long(&snapshot, wanted.iter().copied());
    let write = move || {
        let (items, number) = items(&snapshot, &wanted[..wanted.len().min(limit)], MOST_PAGE)?;
        let next_cursor = wanted.get(number).map(JobIndex::to_string);
        Some(json::ok(&JobPage {
            items: Verbatim::of(&items),
            next_cursor,
        }))
    };
    let page = if long {
        ask.api.engine().run_blocking(write).await
    } else {
        write()
    };
    page.ok_or_else(too_long)
}

/// Writes jobs as a JSON list: all that fit, and at least one. Returns the list and their number.
fn items(snapshot: &Snapshot, wanted: &[JobIndex], most: usize) -> Option<(Vec<u8>, usize)> {
    let mut text = vec![b'['];
    for (at, &index) in wanted.iter().enumerate() {
        let begin = text.len();
        text.extend((at > 0).then_some(b','));
        let most = if at == 0 { MOST_TEXT } else { most };
        if !json::add_within(&mut text, most, &Job::of(snapshot, index, None)) {
            text.truncate(begin);
            text.push(b']');
            return (at > 0).then_some((text, at));
        }
    }
    text.push(b']');
    Some((text, wanted.len()))
}

/// Reads a page of all jobs, and one job more if there is one.
async fn page(
    ask: &RequestContext<'_>,
    id: WorkflowId,
    from: usize,
    limit: usize,
) -> Result<Found, Problem> {
    let all = |number: usize| (from..number).map(|at| JobIndex(at as u32));
    let some = ask
        .api
        .engine()
        .show_some(id, |graph| all(graph.jobs.len()).take(limit).collect());
    let snapshot = in_time(some).await?;
    let wanted = all(snapshot.graph().jobs.len()).take(limit + 1).collect();
    Ok((snapshot, wanted))
}

/// Reads a page of the jobs in some states. That needs all jobs of the workflow, unless its counts
/// show that there are none.
async fn page_of(
    ask: &RequestContext<'_>,
    id: WorkflowId,
    words: &[&str],
    from: usize,
    limit: usize,
) -> Result<Found, Problem> {
    let engine = ask.api.engine();
    let counts = engine.glance(id).await?.counts;
    if words.iter().all(|word| counts.of(word) == 0) {
        return Ok((
            in_time(engine.show_some(id, |_| Vec::new())).await?,
            Vec::new(),
        ));
    }
    let snapshot = ask.api.show(id).await?;
    let jobs = snapshot.jobs().iter().enumerate().skip(from);
    let jobs = jobs
        .filter(|(_, job)| words.contains(&job.state.word()))
        .map(|(at, _)| JobIndex(at as u32));
    let wanted = jobs.take(limit + 1).collect();
    Ok((snapshot, wanted))
}

/// Parses a list of states.
fn states(list: Option<&str>) -> Result<Vec<&str>, Problem> {
    let words: Vec<&str> = list.iter().flat_map(|list| list.split(',')).collect();
    let Some(word) = words.iter().find(|word| !JobState::WORDS.contains(*word)) else {
        return Ok(words);
    };
    let known = JobState::WORDS.join(", ");
    Err(Problem::field(
        "state",
        format!("'{word}' is not a state; expected one of {known}"),
    ))
}

/// Returns the index of the job that the path names.
fn find(snapshot: &Snapshot, name: &str) -> Result<JobIndex, Problem> {
    let none = || {
        Problem::new(
            Code::JobNotFound,
            format!("workflow {} has no job '{name}'", snapshot.id()),
        )
    };
    snapshot.graph().find(name).ok_or_else(none)
}

pub(crate) async fn show(ask: &RequestContext<'_>) -> Answer {
    let id = ask.workflow()?;
    let name = ask.matched.name(1)?;
    let snapshot = in_time(
        ask.api
            .engine()
            .show_some(id, |graph| graph.find(&name).into_iter().collect()),
    )
    .await?;
    let index = find(&snapshot, &name)?;
    let snapshot = with_reasons(ask, snapshot, &[index], MOST_HOLDERS).await?;
    let result = ask
        .api
        .engine()
        .results(id, &[index])
        .await?
        .pop()
        .unwrap_or_default();
    let long = is_long(&snapshot, [index]);
    let write = move || json::text_within(MOST_TEXT, &Job::of(&snapshot, index, Some(&result)));
    let text = if long {
        ask.api.engine().run_blocking(write).await
    } else {
        write()
    };
    Ok(json::page(text.ok_or_else(too_long)?))
}

/// Applies an action without a body to the job that the path names.
pub(crate) async fn act(ask: &RequestContext<'_>, action: fn(String) -> Action) -> Answer {
    let job = ask.matched.name(1)?;
    body::read_optional::<NoBody>(ask.body)?;
    done(ask, action(job), Condition::default()).await
}

pub(crate) async fn mark_succeeded(ask: &RequestContext<'_>) -> Answer {
    let job = ask.matched.name(1)?;
    let MarkBody { output } = body::read_optional(ask.body)?;
    check_output(output)?;
    let output = output.map(|output| Json::from_checked(output.get()));
    let action = Action::MarkSucceeded { job, output };
    done(ask, action, Condition::default()).await
}

pub(crate) async fn retry(ask: &RequestContext<'_>) -> Answer {
    let job = ask.matched.name(1)?;
    let condition = body::read_optional::<RetryBody>(ask.body)?.resolve()?;
    done(ask, Action::RetryJob(job), condition).await
}
