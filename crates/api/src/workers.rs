//! Workers: their list with the jobs of each, and draining.

pub(crate) mod events;
mod registry;
mod shared_status;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate_workflow::{Claim, JobState, LeaseRef, SharedTable, Timestamp};
use tokio::time::timeout;
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body::{self, NoBody};
use crate::http::json::{self, Id};
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::request::{Answer, AppState, RequestContext, in_time};
use crate::http::time::Rfc3339;
use crate::jobs::claims::check_name;
use registry::Drain;
pub(crate) use registry::{Process, WorkerRegistry};
use shared_status::WorkerReport;

/// Most workers of a page.
const MOST_ITEMS: usize = 100;
/// Most jobs that a page shows of each worker.
const MOST_JOBS: usize = 10;
/// Most workers that drain at a time.
const MOST_DRAINS: usize = 10_000;

/// Longest time for which a claim waits for the store's list of draining workers.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// A page of workers, by name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct WorkerPage {
    items: Vec<WorkerItem>,
    /// The cursor of the next page; null when this is the last.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
}

/// A worker that has called in the last two minutes, or holds leases, or is to drain; it drains no longer when it has done neither for two minutes.
#[derive(Debug, Serialize)]
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
#[derive(Debug, Serialize)]
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
#[derive(Debug, Serialize)]
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
pub(crate) fn note_claim<'a>(
    api: &AppState,
    claim: &'a Claim,
    uptime: Option<Duration>,
) -> Process<'a> {
    let now = api.now();
    let process = Process {
        worker: &claim.worker,
        started: uptime.map(|uptime| now.before(uptime)),
    };
    api.roll.note_claim(claim, process.started, now);
    keep(api);
    process
}

fn keep(api: &AppState) {
    if api.roll.needs_keeper() {
        let keeper = shared_status::keep(
            Arc::clone(&api.roll),
            api.engine().clone(),
            api.host.clone(),
        );
        api.host.tasks.spawn(keeper);
    }
}

/// Waits until the draining workers are known, if this is the first claim since the start or after
/// some idle minutes. If the store does not answer, the worker gets jobs.
pub(crate) async fn await_drains(api: &AppState) {
    if !*api.roll.looked.borrow() {
        let mut looked = api.roll.looked.subscribe();
        let _looked_in_vain = timeout(LONGEST_LOOK, looked.wait_for(|looked| *looked)).await;
    }
}

pub(crate) async fn list(ask: &RequestContext<'_>) -> Answer {
    let mut query = Query::new(ask.query)?;
    let limit = query.limit(MOST_ITEMS, MOST_ITEMS)?;
    let after = query.take("cursor");
    query.end()?;
    let api = ask.api;
    let workers = shared_status::workers(&api.roll, api.engine(), api.now()).await?;
    let drains = shared_status::drains(api.engine()).await?;
    // A cursor is the name of the last worker. It stays valid when workers come and go.
    let is_later = |name: &&String| after.as_ref().is_none_or(|after| *name > after);
    let mut names: Vec<&String> = workers
        .keys()
        .chain(drains.keys())
        .filter(is_later)
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut items = Vec::with_capacity(names.len().min(limit));
    for name in names.iter().take(limit) {
        items.push(item(api, name, workers.get(*name), drains.get(*name)).await?);
    }
    let next_cursor = (names.len() > limit).then(|| names[limit - 1].clone());
    Ok(json::ok(&WorkerPage { items, next_cursor }))
}

async fn item(
    api: &AppState,
    name: &str,
    told: Option<&WorkerReport>,
    drain: Option<&Drain>,
) -> Result<WorkerItem, Problem> {
    let mut jobs = Vec::new();
    for (lease, since) in told.iter().flat_map(|told| told.leases()).take(MOST_JOBS) {
        jobs.extend(job(api, lease, since).await?);
    }
    let moment = |micros| Rfc3339(Timestamp::from_micros(micros));
    let started = told
        .and_then(|told| told.started)
        .map(Timestamp::from_micros);
    let drain = drain.filter(|drain| drain.is_for(started));
    Ok(WorkerItem {
        name: name.to_owned(),
        seen_at: told.map(|told| moment(told.seen)),
        queues: told.map(|told| told.queues.clone()).unwrap_or_default(),
        handlers: told.and_then(|told| told.handlers.clone()),
        running: told.map_or(0, |told| told.running),
        jobs,
        draining_since: drain.map(|drain| moment(drain.since)),
        draining_by: drain.and_then(|drain| drain.by.clone()),
    })
}

/// Reads the job of a lease. `None` if the lease is over.
async fn job(
    api: &AppState,
    lease: LeaseRef,
    since: Timestamp,
) -> Result<Option<WorkerJob>, Problem> {
    let snapshot = match in_time(api.engine().show_some(lease.workflow, |_| vec![lease.job])).await
    {
        Err(problem) if problem.code == Code::WorkflowNotFound => return Ok(None),
        snapshot => snapshot?,
    };
    let Some(about) = snapshot.graph().jobs.get(lease.job.index()) else {
        return Ok(None);
    };
    let job = snapshot.job(lease.job);
    if !matches!(job.state, JobState::Running { .. }) || job.token != lease.token {
        return Ok(None);
    }
    Ok(Some(WorkerJob {
        workflow_id: Id(lease.workflow),
        job: about.name.clone(),
        handler: about.handler.clone(),
        queue: about.queue.clone(),
        since: Rfc3339(since),
    }))
}

pub(crate) async fn set(ask: &RequestContext<'_>, draining: Draining) -> Answer {
    body::read_optional::<NoBody>(ask.body)?;
    let name = worker(ask)?;
    let api = ask.api;
    let engine = ask.api.engine();
    let drains = shared_status::drains(engine).await?;
    match draining {
        Draining::Begin if drains.len() >= MOST_DRAINS && !drains.contains_key(&name) => {
            let detail =
                format!("{MOST_DRAINS} workers drain already: end that of those that are gone");
            return Err(Problem::new(Code::StateConflict, detail));
        }
        Draining::Begin => {
            let drain = Drain {
                since: api.now().micros(),
                by: ask.token.map(str::to_owned),
            };
            let note = serde_json::to_string(&drain).expect("it has only texts and numbers");
            engine
                .store()
                .put_row(SharedTable::Draining, &name, Some(&note))
                .await?;
        }
        Draining::End => {
            engine
                .store()
                .put_row(SharedTable::Draining, &name, None)
                .await?
        }
    }
    keep(api);
    api.roll.set_drains(shared_status::drains(engine).await?);
    engine.call_out().await;
    Ok(json::ok(&WorkerDraining {
        name: &name,
        draining: draining == Draining::Begin,
    }))
}

/// Returns the name of the worker that the path has.
fn worker(ask: &RequestContext<'_>) -> Result<String, Problem> {
    let name = ask.matched.name(0)?;
    check_name(&name, || "worker".to_owned())?;
    Ok(name)
}
