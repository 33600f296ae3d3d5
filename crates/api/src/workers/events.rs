//! Server-sent events for a worker: lost leases, and draining.

use std::collections::{HashMap, HashSet};

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate_workflow::{Engine, EngineError, Job, JobState, LeaseRef, Timestamp, WorkflowId};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use tokio_util::sync::CancellationToken;
#[cfg(test)]
use utoipa::ToSchema;

use super::{shared_status, start_registry_task, worker_name};
use crate::http::json::Id;
use crate::http::query::Query;
use crate::http::quota::QuotaGuard;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::feeds::frames::{
    BodyChunk, KEEP_ALIVE_COMMENT, KEEP_ALIVE_INTERVAL, push_event, stream,
};
use crate::state::metrics::OpenStream;
use crate::state::worker_registry::{DrainingWorkers, WorkerProcess, WorkerRegistry};

/// Poll interval for the jobs of the worker: a cancellation is sent within a second.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of reading the leases that other servers gave to the worker. Servers report them no
/// more often.
const REMOTE_READ_INTERVAL: Duration = Duration::from_secs(5);

/// Most leases of one worker that are checked.
const MAX_LEASES: usize = 200;
/// Longest uptime that a worker may report.
const MAX_UPTIME: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Texts that are queued for a slow reader.
const MAX_QUEUED_TEXTS: usize = 4;

/// A lease of the worker is over before it has reported: it should stop the work.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct LeaseLostEvent<'a> {
    lease: String,
    workflow_id: Id,
    /// As in a problem with `lease_lost`.
    reason: &'a str,
}

/// Whether the worker is to take no more jobs. It comes first, and whenever it changes.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct DrainEvent {
    drain: bool,
}

pub(crate) async fn events(request: &RequestContext<'_>) -> HandlerResult {
    let name = worker_name(request)?;
    let mut query = Query::new(request.query)?;
    let uptime = query.duration("uptime", MAX_UPTIME)?;
    query.finish()?;
    let started = request
        .api
        .worker_registry
        .process(&name, uptime, request.now())
        .started;
    let guard = request
        .api
        .quotas
        .worker_streams
        .try_reserve(&request.caller(), 1)?;
    let engine = request.engine().clone();
    start_registry_task(request.api);
    request
        .api
        .worker_registry
        .set_drains(shared_status::read_drains(&engine).await?);
    let (texts, receiver) = mpsc::channel(MAX_QUEUED_TEXTS);
    let worker_stream = WorkerStream {
        drains: request.api.worker_registry.subscribe_drains(),
        name,
        started,
        engine,
        registry: Arc::clone(&request.api.worker_registry),
        clock: Arc::clone(&request.api.hooks.clock),
        drain: request.api.hooks.drain.clone(),
        _slot: (guard, request.api.metrics.open_stream()),
        texts,
        remote_leases: Vec::new(),
        remote_read_at: None,
        checked: HashMap::new(),
        reported: HashSet::new(),
    };
    request.api.hooks.tasks.spawn(worker_stream.run());
    Ok(stream(receiver))
}

/// Follows one worker for one reader. It ends with the reader or the server.
struct WorkerStream {
    name: String,
    /// Start time of the reader's process, if it reports its uptime.
    started: Option<Timestamp>,
    engine: Engine,
    registry: Arc<WorkerRegistry>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    drains: watch::Receiver<Arc<DrainingWorkers>>,
    drain: CancellationToken,
    /// Quota of this stream.
    _slot: (QuotaGuard, OpenStream),
    texts: mpsc::Sender<BodyChunk>,
    /// Leases that other servers gave to the worker, and the time of reading them.
    remote_leases: Vec<LeaseRef>,
    remote_read_at: Option<Instant>,
    /// Version at which the jobs of each workflow were checked, and the leases that were checked.
    checked: HashMap<WorkflowId, (u64, Vec<LeaseRef>)>,
    reported: HashSet<LeaseRef>,
}

impl WorkerStream {
    async fn run(mut self) {
        let mut draining = None;
        let mut last_sent = Instant::now();
        loop {
            let mut text = Vec::new();
            let process = WorkerProcess {
                worker: &self.name,
                started: self.started,
            };
            let drain = process.drains(&self.drains.borrow_and_update());
            if draining != Some(drain) {
                draining = Some(drain);
                push_event(&mut text, "drain", &DrainEvent { drain });
            }
            self.add_lost_leases(&mut text).await;
            if text.is_empty() && last_sent.elapsed() >= KEEP_ALIVE_INTERVAL {
                text.extend_from_slice(KEEP_ALIVE_COMMENT);
            }
            if !text.is_empty() {
                last_sent = Instant::now();
                tokio::select! {
                    sent = self.texts.send(Ok(text.into())) => if sent.is_err() { return },
                    () = self.drain.cancelled() => return,
                }
            }
            tokio::select! {
                // Changes about other workers wake the stream too, but not too often.
                _ = timeout(LEASE_POLL_INTERVAL, self.drains.changed()) => {}
                () = self.texts.closed() => return,
                () = self.drain.cancelled() => return,
            }
        }
    }

    /// Adds the leases that were lost since the last poll.
    async fn add_lost_leases(&mut self, text: &mut Vec<u8>) {
        let mut leases: HashMap<WorkflowId, Vec<LeaseRef>> = HashMap::new();
        let all = self.leases().await;
        self.reported.retain(|lease| all.contains(lease));
        for lease in all {
            if !self.reported.contains(&lease) {
                leases.entry(lease.workflow).or_default().push(lease);
            }
        }
        self.checked
            .retain(|workflow, _| leases.contains_key(workflow));
        for (workflow, leases) in leases {
            for (lease, reason) in self.lost_leases(workflow, leases).await {
                self.reported.insert(lease);
                push_event(
                    text,
                    "lease_lost",
                    &LeaseLostEvent {
                        lease: lease.text(),
                        workflow_id: Id(workflow),
                        reason,
                    },
                );
            }
        }
    }

    async fn leases(&mut self) -> HashSet<LeaseRef> {
        if self
            .remote_read_at
            .is_none_or(|read_at| read_at.elapsed() >= REMOTE_READ_INTERVAL)
        {
            self.remote_read_at = Some(Instant::now());
            // If the read fails, the earlier list stays.
            if let Ok(reports) = shared_status::remote_workers(&self.engine, (self.clock)()).await {
                let own = reports.iter().filter(|(name, _)| *name == self.name);
                self.remote_leases = own
                    .flat_map(|(_, reports)| reports.leases())
                    .map(|(lease, _)| lease)
                    .collect();
            }
        }
        let own = self.registry.leases_of(&self.name, (self.clock)());
        own.into_iter()
            .chain(self.remote_leases.iter().copied())
            .take(MAX_LEASES)
            .collect()
    }

    /// Returns the leases of one workflow that are over, with the reason of each.
    async fn lost_leases(
        &mut self,
        workflow: WorkflowId,
        mut leases: Vec<LeaseRef>,
    ) -> Vec<(LeaseRef, &'static str)> {
        leases.sort_unstable_by_key(|lease| (lease.job, lease.token));
        let version = match self.engine.workflow_meta(workflow).await {
            Ok(meta) => meta.version,
            Err(EngineError::NoWorkflow { .. }) => {
                return leases.into_iter().map(|lease| (lease, "unknown")).collect();
            }
            // The next poll may succeed.
            Err(_) => return Vec::new(),
        };
        if self
            .checked
            .get(&workflow)
            .is_some_and(|checked| *checked == (version, leases.clone()))
        {
            return Vec::new();
        }
        let jobs = leases.iter().map(|lease| lease.job).collect();
        let Ok(snapshot) = self.engine.show_jobs(workflow, |_| jobs).await else {
            return Vec::new();
        };
        let mut lost = Vec::new();
        for lease in &leases {
            lost.extend(loss_reason(snapshot.job(lease.job), lease).map(|reason| (*lease, reason)));
        }
        self.checked.insert(workflow, (version, leases));
        lost
    }
}

/// Returns why a lease is over. `None` if it is valid, or has been reported.
fn loss_reason(job: &Job, lease: &LeaseRef) -> Option<&'static str> {
    match (job.state, job.ended_by) {
        _ if job.token == lease.token => None,
        (JobState::Running { .. }, _) => Some("taken_over"),
        (_, Some(end)) => Some(end.word()),
        (_, None) => Some("unknown"),
    }
}
