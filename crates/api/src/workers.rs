//! Workers: their list with the jobs of each, draining, queues and policies.

pub(crate) mod events;
pub(crate) mod policies;
pub(crate) mod queues;
pub(crate) mod shared_status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate_workflow::{Claim, JobState, LeaseRef, SharedTable, Timestamp};
use tokio::time::timeout;
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body::check_name;
use crate::http::body::{self, NoBody};
use crate::http::json::{self, Id};
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{AppState, HandlerResult, RequestContext, with_read_timeout};
use crate::state::worker_registry::Drain;
pub(crate) use crate::state::worker_registry::WorkerProcess;
use shared_status::WorkerReport;

/// Most workers of a page.
const MAX_PAGE_WORKERS: usize = 100;
/// Most jobs that a page shows of each worker.
const MAX_LISTED_JOBS: usize = 10;
/// Most workers that drain at a time.
const MAX_DRAINING_WORKERS: usize = 10_000;

/// Longest time for which a claim waits for the store's list of draining workers.
const DRAINS_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// A page of workers, by name.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct WorkerPage {
    items: Vec<WorkerItem>,
    /// The cursor of the next page; null when this is the last.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
}

/// A worker that has called in the last two minutes, or holds leases, or is to drain; it drains no longer when it has done neither for two minutes.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Worker))]
struct WorkerItem {
    name: String,
    /// When it called last; null when that is not known.
    #[cfg_attr(test, schema(required))]
    seen_at: Option<Rfc3339>,
    /// The queues that its latest claim named, at most 20.
    queues: Vec<String>,
    /// The handlers that it named, at most 20; null when it runs everything.
    #[cfg_attr(test, schema(required))]
    handlers: Option<Vec<String>>,
    /// How many leases it holds, about.
    running: usize,
    /// Jobs that it runs: the ten that it has had for longest.
    jobs: Vec<WorkerJob>,
    /// Since when it is to take no more jobs; null when it may take some.
    #[cfg_attr(test, schema(required))]
    draining_since: Option<Rfc3339>,
    /// Name of the token of the caller that set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    draining_by: Option<String>,
}

/// A job that a worker runs.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct WorkerJob {
    workflow_id: Id,
    job: String,
    handler: String,
    queue: String,
    /// When it was claimed.
    since: Rfc3339,
}

/// Whether a worker is to take no more jobs.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct WorkerDraining<'a> {
    name: &'a str,
    draining: bool,
}

/// Action on the draining of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draining {
    Begin,
    End,
}

/// Records the claim of a worker that has run for `uptime`, and starts the task that reads the
/// reports of other servers. Returns the process that claims.
pub(crate) fn record_claim<'a>(
    api: &AppState,
    claim: &'a Claim,
    uptime: Option<Duration>,
) -> WorkerProcess<'a> {
    let now = api.now();
    let process = WorkerProcess {
        worker: &claim.worker,
        started: uptime.map(|uptime| now.before(uptime)),
    };
    api.worker_registry
        .record_claim(claim, process.started, now);
    start_registry_task(api);
    process
}

fn start_registry_task(api: &AppState) {
    if api.worker_registry.claim_task() {
        let task = shared_status::run(
            Arc::clone(&api.worker_registry),
            api.engine().clone(),
            api.hooks.clone(),
        );
        api.hooks.tasks.spawn(task);
    }
}

/// Waits until the draining workers are known, if this is the first claim since the start or after
/// some idle minutes. If the store does not answer, the worker gets jobs.
pub(crate) async fn await_drains(api: &AppState) {
    if !*api.worker_registry.drains_read.borrow() {
        let mut drains_read = api.worker_registry.drains_read.subscribe();
        let _timed_out = timeout(
            DRAINS_READ_TIMEOUT,
            drains_read.wait_for(|drains_read| *drains_read),
        )
        .await;
    }
}

pub(crate) async fn list(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let limit = query.limit(MAX_PAGE_WORKERS, MAX_PAGE_WORKERS)?;
    let after = query.remove("cursor");
    query.finish()?;
    let api = request.api;
    let workers = shared_status::workers(&api.worker_registry, api.engine(), api.now()).await?;
    let drains = shared_status::read_drains(api.engine()).await?;
    let names = names_after(after, workers.keys().chain(drains.keys()));
    let mut items = Vec::new();
    for &name in names.iter().take(limit) {
        items.push(item(api, name, workers.get(name), drains.get(name)).await?);
    }
    let last = items.last().filter(|_| names.len() > limit);
    let next_cursor = last.map(|last| last.name.clone());
    Ok(json::ok(&WorkerPage { items, next_cursor }))
}

/// The names of a page and of those behind it. A cursor is the name of the last worker, so it stays
/// valid when workers come and go.
fn names_after<'n>(
    after: Option<String>,
    names: impl Iterator<Item = &'n String>,
) -> BTreeSet<&'n String> {
    let is_later = |name: &&String| after.as_ref().is_none_or(|after| *name > after);
    names.filter(is_later).collect()
}

async fn item(
    api: &AppState,
    name: &str,
    report: Option<&WorkerReport>,
    drain: Option<&Drain>,
) -> Result<WorkerItem, Problem> {
    let moment = |micros| Rfc3339(Timestamp::from_micros(micros));
    let seen_at = report.map(|report| moment(report.seen));
    let report = report.cloned().unwrap_or_default();
    let started = report.started.map(Timestamp::from_micros);
    let drain = drain.filter(|drain| drain.is_for(started));
    Ok(WorkerItem {
        name: name.to_owned(),
        seen_at,
        jobs: running_jobs(api, &report).await?,
        queues: report.queues,
        handlers: report.handlers,
        running: report.running,
        draining_since: drain.map(|drain| moment(drain.since)),
        draining_by: drain.and_then(|drain| drain.by.clone()),
    })
}

/// Reads the jobs of the first leases of a worker.
async fn running_jobs(api: &AppState, report: &WorkerReport) -> Result<Vec<WorkerJob>, Problem> {
    let mut jobs = Vec::new();
    for (lease, since) in report.leases().take(MAX_LISTED_JOBS) {
        jobs.extend(running_job(api, lease, since).await?);
    }
    Ok(jobs)
}

/// Reads the job of a lease. `None` if the lease is over.
async fn running_job(
    api: &AppState,
    lease: LeaseRef,
    since: Timestamp,
) -> Result<Option<WorkerJob>, Problem> {
    let snapshot = match with_read_timeout(
        api.engine().show_jobs(lease.workflow, |_| vec![lease.job]),
    )
    .await
    {
        Err(problem) if problem.code == Code::WorkflowNotFound => return Ok(None),
        snapshot => snapshot?,
    };
    let Some(definition) = snapshot.graph().jobs.get(lease.job.index()) else {
        return Ok(None);
    };
    let job = snapshot.job(lease.job);
    if !matches!(job.state, JobState::Running { .. }) || job.token != lease.token {
        return Ok(None);
    }
    Ok(Some(WorkerJob {
        workflow_id: Id(lease.workflow),
        job: definition.name.clone(),
        handler: definition.handler.clone(),
        queue: definition.queue.clone(),
        since: Rfc3339(since),
    }))
}

pub(crate) async fn set(request: &RequestContext<'_>, draining: Draining) -> HandlerResult {
    body::read_optional::<NoBody>(request.body)?;
    let name = worker_name(request)?;
    let api = request.api;
    let engine = request.engine();
    let row = match draining {
        Draining::Begin => Some(drain_row(request, &name).await?),
        Draining::End => None,
    };
    engine
        .store()
        .put_row(SharedTable::Draining, &name, row.as_deref())
        .await?;
    start_registry_task(api);
    api.worker_registry
        .set_drains(shared_status::read_drains(engine).await?);
    engine.broadcast_change().await;
    Ok(json::ok(&WorkerDraining {
        name: &name,
        draining: draining == Draining::Begin,
    }))
}

/// Returns the row of a worker that begins to drain now.
///
/// # Errors
/// Too many others drain.
async fn drain_row(request: &RequestContext<'_>, name: &str) -> Result<String, Problem> {
    let drains = shared_status::read_drains(request.engine()).await?;
    if drains.len() >= MAX_DRAINING_WORKERS && !drains.contains_key(name) {
        let detail = format!(
            "{MAX_DRAINING_WORKERS} workers drain already: end that of those that are gone"
        );
        return Err(Problem::new(Code::StateConflict, detail));
    }
    let drain = Drain {
        since: request.now().micros(),
        by: request.token.map(str::to_owned),
    };
    Ok(serde_json::to_string(&drain).expect("it has only texts and numbers"))
}

/// Returns the name of the worker that the path has.
fn worker_name(request: &RequestContext<'_>) -> Result<String, Problem> {
    let name = request.matched.name(0)?;
    check_name(&name, || "worker".to_owned())?;
    Ok(name)
}
