//! Server-sent events for a worker: lost leases, and draining.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use tidegate_workflow::{Engine, EngineError, JobState, LeaseRef, Timestamp, WorkflowId};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
#[cfg(test)]
use utoipa::ToSchema;

use super::registry::{Drains, Process, WorkerRegistry};
use super::{keep, shared_status, worker};
use crate::http::json::Id;
use crate::http::query::Query;
use crate::http::quota::QuotaGuard;
use crate::http::request::{Answer, RequestContext};
use crate::metrics::OpenStream;

/// Poll interval for the jobs of the worker: a cancellation is sent within a second.
const LOOK: Duration = Duration::from_millis(500);
/// Interval of reading the leases that other servers gave to the worker. Servers report them no
/// more often.
const ELSEWHERE: Duration = Duration::from_secs(5);
/// Interval of the comment that keeps an idle stream open. Proxies close connections without
/// traffic after a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Most leases of one worker that are checked.
const MOST_LEASES: usize = 200;
/// Longest uptime that a worker may report.
const MAX_UPTIME: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Texts that are queued for a slow reader.
const TEXTS: usize = 4;

/// A lease of the worker is over before it has reported: it should stop the work.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct LeaseLostEvent<'a> {
    lease: String,
    workflow_id: Id,
    /// As in a problem with `lease_lost`.
    reason: &'a str,
}

/// Whether the worker is to take no more jobs. It comes first, and whenever it changes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct DrainEvent {
    drain: bool,
}

pub(crate) async fn events(ask: &RequestContext<'_>) -> Answer {
    let name = worker(ask)?;
    let mut query = Query::new(ask.query)?;
    let uptime = query.span("uptime", MAX_UPTIME)?;
    query.end()?;
    let started = ask.api.roll.process(&name, uptime, ask.api.now()).started;
    let share = ask.api.rooms.worker_streams.take(&ask.caller(), 1)?;
    let engine = ask.api.engine().clone();
    keep(ask.api);
    ask.api
        .roll
        .set_drains(shared_status::drains(&engine).await?);
    let (texts, receiver) = mpsc::channel(TEXTS);
    let watch = Watch {
        drains: ask.api.roll.follow(),
        name,
        started,
        engine,
        roll: Arc::clone(&ask.api.roll),
        clock: Arc::clone(&ask.api.host.clock),
        drain: ask.api.host.drain.clone(),
        _places: (share, ask.api.activity.open_stream()),
        texts,
        elsewhere: Vec::new(),
        asked: None,
        versions: HashMap::new(),
        told: HashSet::new(),
    };
    ask.api.host.tasks.spawn(watch.run());
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// Follows one worker for one reader. It ends with the reader or the server.
struct Watch {
    name: String,
    /// Start time of the reader's process, if it reports its uptime.
    started: Option<Timestamp>,
    engine: Engine,
    roll: Arc<WorkerRegistry>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    drains: watch::Receiver<Arc<Drains>>,
    drain: CancellationToken,
    /// Quota of this stream.
    _places: (QuotaGuard, OpenStream),
    texts: mpsc::Sender<Result<Bytes, Infallible>>,
    /// Leases that other servers gave to the worker, and the time of reading them.
    elsewhere: Vec<LeaseRef>,
    asked: Option<Instant>,
    /// Version at which the jobs of each workflow were checked, and the leases that were checked.
    versions: HashMap<WorkflowId, (u64, Vec<LeaseRef>)>,
    told: HashSet<LeaseRef>,
}

impl Watch {
    async fn run(mut self) {
        let mut draining = None;
        let mut spoke = Instant::now();
        loop {
            let mut text = String::new();
            let process = Process {
                worker: &self.name,
                started: self.started,
            };
            let drain = process.drains(&self.drains.borrow_and_update());
            if draining != Some(drain) {
                draining = Some(drain);
                add(&mut text, "drain", &DrainEvent { drain });
            }
            self.look(&mut text).await;
            if text.is_empty() && spoke.elapsed() >= KEEP_ALIVE {
                text.push_str(": still here\n\n");
            }
            if !text.is_empty() {
                spoke = Instant::now();
                tokio::select! {
                    sent = self.texts.send(Ok(text.into())) => if sent.is_err() { return },
                    () = self.drain.cancelled() => return,
                }
            }
            tokio::select! {
                // Changes about other workers wake the stream too, but not too often.
                _ = timeout(LOOK, self.drains.changed()) => {}
                () = self.texts.closed() => return,
                () = self.drain.cancelled() => return,
            }
        }
    }

    /// Adds the leases that were lost since the last poll.
    async fn look(&mut self, text: &mut String) {
        let mut leases: HashMap<WorkflowId, Vec<LeaseRef>> = HashMap::new();
        let all = self.leases().await;
        self.told.retain(|lease| all.contains(lease));
        for lease in all {
            if !self.told.contains(&lease) {
                leases.entry(lease.workflow).or_default().push(lease);
            }
        }
        self.versions
            .retain(|workflow, _| leases.contains_key(workflow));
        for (workflow, leases) in leases {
            for (lease, reason) in self.lost(workflow, leases).await {
                self.told.insert(lease);
                add(
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
        if self.asked.is_none_or(|asked| asked.elapsed() >= ELSEWHERE) {
            self.asked = Some(Instant::now());
            // If the read fails, the earlier list stays.
            if let Ok(told) = shared_status::elsewhere(&self.engine, (self.clock)()).await {
                let own = told.iter().filter(|(name, _)| *name == self.name);
                self.elsewhere = own
                    .flat_map(|(_, told)| told.leases())
                    .map(|(lease, _)| lease)
                    .collect();
            }
        }
        let own = self.roll.leases_of(&self.name, (self.clock)());
        own.into_iter()
            .chain(self.elsewhere.iter().copied())
            .take(MOST_LEASES)
            .collect()
    }

    /// Returns the leases of one workflow that are over, with the reason of each.
    async fn lost(
        &mut self,
        workflow: WorkflowId,
        mut leases: Vec<LeaseRef>,
    ) -> Vec<(LeaseRef, &'static str)> {
        leases.sort_unstable_by_key(|lease| (lease.job, lease.token));
        let version = match self.engine.glance(workflow).await {
            Ok(meta) => meta.version,
            Err(EngineError::NoWorkflow { .. }) => {
                return leases.into_iter().map(|lease| (lease, "unknown")).collect();
            }
            // The next poll may succeed.
            Err(_) => return Vec::new(),
        };
        if self
            .versions
            .get(&workflow)
            .is_some_and(|known| *known == (version, leases.clone()))
        {
            return Vec::new();
        }
        let jobs = leases.iter().map(|lease| lease.job).collect();
        let Ok(snapshot) = self.engine.show_some(workflow, |_| jobs).await else {
            return Vec::new();
        };
        let mut lost = Vec::new();
        for lease in &leases {
            let job = snapshot.job(lease.job);
            match (job.state, job.ended_by) {
                // The lease is valid, or has been reported.
                _ if job.token == lease.token => {}
                (JobState::Running { .. }, _) => lost.push((*lease, "taken_over")),
                (_, Some(end)) => lost.push((*lease, end.word())),
                (_, None) => lost.push((*lease, "unknown")),
            }
        }
        self.versions.insert(workflow, (version, leases));
        lost
    }
}

fn add(text: &mut String, event: &str, body: &impl Serialize) {
    let body = serde_json::to_string(body).expect("it has only texts and words");
    let _never = write!(text, "event: {event}\ndata: {body}\n\n");
}
