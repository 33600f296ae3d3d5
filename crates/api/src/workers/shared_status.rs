//! Reports of servers about their workers, which they share through the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_workflow::{Engine, LeaseRef, SharedTable, StoreError, Timestamp};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::state::server_hooks::ServerHooks;
use crate::state::worker_registry::{DrainingWorkers, ListedWorker, WorkerRegistry};

/// Poll interval of the list of draining workers while notifications are not received, as long as
/// workers call this server.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which a server reports its workers and reads the list of draining workers in any
/// case: notifications may get lost.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Age after which the report of a server does not count.
const REPORT_TTL: Duration = Duration::from_secs(30);
/// Most leases that are reported of each worker.
const MAX_LEASES: usize = 100;
/// Most bytes of a report.
const MAX_REPORT_BYTES: usize = 256 * 1024;

/// Report of a server about its workers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ServerReport {
    /// Time of the report in microseconds.
    at: u64,
    workers: BTreeMap<String, WorkerReport>,
}

/// Report about one worker. Times are in microseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    pub(super) seen: u64,
    pub(crate) queues: Vec<String>,
    pub(crate) handlers: Option<Vec<String>>,
    /// Start time of its process, if the worker reports it.
    #[serde(default)]
    pub(crate) started: Option<u64>,
    /// Number of its leases, and the first of them with the time of the claim.
    pub(super) running: usize,
    pub(crate) leases: Vec<(String, u64)>,
}

impl WorkerReport {
    /// Returns the name of a worker, and its report.
    fn from_listed((name, record, mut leases): ListedWorker) -> (String, Self) {
        let running = leases.len();
        leases.sort_by_key(|(lease, since)| (*since, lease.workflow, lease.job));
        let first = leases
            .iter()
            .take(MAX_LEASES)
            .map(|(lease, since)| (lease.text(), since.micros()));
        (
            name,
            Self {
                seen: record.seen_at.micros(),
                queues: record.queues,
                handlers: record.handlers,
                started: record.started.map(Timestamp::micros),
                running,
                leases: first.collect(),
            },
        )
    }

    fn estimated_bytes(&self) -> usize {
        let names = self.queues.iter().chain(self.handlers.iter().flatten());
        64 + names.map(|name| 3 + name.len()).sum::<usize>() + 80 * self.leases.len()
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = (LeaseRef, Timestamp)> + '_ {
        self.leases.iter().filter_map(|(lease, since)| {
            Some((lease.parse().ok()?, Timestamp::from_micros(*since)))
        })
    }

    /// Merges the report of another server about this worker.
    fn merge(&mut self, other: Self) {
        if other.seen > self.seen {
            (self.seen, self.started) = (other.seen, other.started);
            (self.queues, self.handlers) = (other.queues, other.handlers);
        }
        self.running += other.running;
        self.leases.extend(other.leases);
        self.leases.truncate(MAX_LEASES);
    }
}

/// Runs the task of the registry as long as workers call this server.
pub(super) async fn run(registry: Arc<WorkerRegistry>, engine: Engine, host: ServerHooks) {
    loop {
        follow_drains(&registry, &engine, &host.drain).await;
        if host.drain.is_cancelled() {
            return;
        }
        let now = (host.clock)();
        registry.remove_expired(now);
        end_drains(&registry, &engine, now).await;
        let report = report(&registry, now);
        let server = engine.server_id().to_string();
        if report.workers.is_empty() {
            let _gone_when_stale = engine
                .store()
                .put_row(SharedTable::Workers, &server, None)
                .await;
            // Draining of workers that are gone ends here, even if no worker is left.
            if registry.has_drains() {
                continue;
            }
            registry.drains_read.send_replace(false);
            registry.has_task.store(false, Relaxed);
            return;
        }
        let text = serde_json::to_string(&report).expect("names of a map are texts");
        let _sent_again = engine
            .store()
            .put_row(SharedTable::Workers, &server, Some(&text))
            .await;
    }
}

/// Follows which workers drain, until the next report is due or the server drains.
async fn follow_drains(registry: &WorkerRegistry, engine: &Engine, drain: &CancellationToken) {
    let until = Instant::now() + REPORT_INTERVAL;
    while Instant::now() < until {
        // If the read fails, the earlier list stays.
        if let Ok(drains) = read_drains(engine).await {
            registry.set_drains(drains);
        }
        registry.drains_read.send_replace(true);
        let next_read = if engine.receives_notifications() {
            until
        } else {
            Instant::now() + DRAIN_POLL_INTERVAL
        };
        tokio::select! {
            () = sleep_until(next_read) => {}
            () = engine.next_broadcast() => {}
            () = drain.cancelled() => return,
        }
    }
}

/// Ends the draining of workers that are gone. If the store fails, the next round tries again.
async fn end_drains(registry: &WorkerRegistry, engine: &Engine, now: Timestamp) {
    if !registry.has_drains() {
        return;
    }
    let Ok(others) = remote_workers(engine, now).await else {
        return;
    };
    for name in registry.gone_draining(&others.into_iter().map(|(name, _)| name).collect(), now) {
        let _tried_again = engine
            .store()
            .put_row(SharedTable::Draining, &name, None)
            .await;
    }
}

fn report(registry: &WorkerRegistry, now: Timestamp) -> ServerReport {
    let mut bytes = 0;
    let reports = registry
        .workers()
        .into_iter()
        .map(WorkerReport::from_listed);
    let fits = reports.take_while(|(name, reports)| {
        bytes += name.len() + reports.estimated_bytes();
        bytes <= MAX_REPORT_BYTES
    });
    ServerReport {
        at: now.micros(),
        workers: fits.collect(),
    }
}

/// Returns all draining workers. A row that this version cannot parse does not count.
pub(super) async fn read_drains(engine: &Engine) -> Result<DrainingWorkers, StoreError> {
    let rows = engine.store().table_rows(SharedTable::Draining).await?;
    Ok(rows
        .into_iter()
        .filter_map(|(name, row)| Some((name, serde_json::from_str(&row).ok()?)))
        .collect())
}

/// Returns the workers of all servers, by name. Those of this server are current.
pub(crate) async fn workers(
    registry: &WorkerRegistry,
    engine: &Engine,
    now: Timestamp,
) -> Result<BTreeMap<String, WorkerReport>, StoreError> {
    registry.remove_expired(now);
    let mut all: BTreeMap<String, WorkerReport> = registry
        .workers()
        .into_iter()
        .map(WorkerReport::from_listed)
        .collect();
    for (name, report) in remote_workers(engine, now).await? {
        match all.get_mut(&name) {
            Some(existing) => existing.merge(report),
            None => drop(all.insert(name, report)),
        }
    }
    Ok(all)
}

/// Returns the workers of the other servers.
pub(super) async fn remote_workers(
    engine: &Engine,
    now: Timestamp,
) -> Result<Vec<(String, WorkerReport)>, StoreError> {
    let own_server = engine.server_id().to_string();
    let mut all = Vec::new();
    for (server, row) in engine.store().table_rows(SharedTable::Workers).await? {
        match serde_json::from_str(&row) {
            _ if server == own_server => {}
            // A server that died leaves its report.
            Ok(ServerReport { at, .. }) if now.since(Timestamp::from_micros(at)) > REPORT_TTL => {
                let _tried_again = engine
                    .store()
                    .put_row(SharedTable::Workers, &server, None)
                    .await;
            }
            Ok(ServerReport { workers, .. }) => all.extend(workers),
            Err(_) => {}
        }
    }
    Ok(all)
}
