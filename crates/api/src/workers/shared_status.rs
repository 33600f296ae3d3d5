//! Reports of servers about their workers, which they share through the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_workflow::{Engine, LeaseRef, SharedTable, StoreError, Timestamp};
use tokio::time::{Instant, sleep_until};

use super::registry::{Drains, Listed, WorkerRegistry};
use crate::http::request::ServerHooks;

/// Poll interval of the list of draining workers while notifications are not received, as long as
/// workers call this server.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which a server reports its workers and reads the list of draining workers in any
/// case: notifications may get lost.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Age after which the report of a server does not count.
const REPORT_TTL: Duration = Duration::from_secs(30);
/// Most leases that are reported of each worker.
const MOST_LEASES: usize = 100;
/// Most bytes of a report.
const MOST_BYTES: usize = 256 * 1024;

/// Report of a server about its workers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ServerReport {
    /// Time of the report in microseconds.
    at: u64,
    workers: BTreeMap<String, WorkerReport>,
}

/// Report about one worker. Times are in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WorkerReport {
    pub(super) seen: u64,
    pub(super) queues: Vec<String>,
    pub(super) handlers: Option<Vec<String>>,
    /// Start time of its process, if the worker reports it.
    #[serde(default)]
    pub(super) started: Option<u64>,
    /// Number of its leases, and the first of them with the time of the claim.
    pub(super) running: usize,
    pub(super) leases: Vec<(String, u64)>,
}

impl WorkerReport {
    /// Returns the name of a worker, and its report.
    fn of((name, seen, mut leases): Listed) -> (String, Self) {
        let running = leases.len();
        leases.sort_by_key(|(lease, since)| (*since, lease.workflow, lease.job));
        let first = leases
            .iter()
            .take(MOST_LEASES)
            .map(|(lease, since)| (lease.text(), since.micros()));
        (
            name,
            Self {
                seen: seen.at.micros(),
                queues: seen.queues,
                handlers: seen.handlers,
                started: seen.started.map(Timestamp::micros),
                running,
                leases: first.collect(),
            },
        )
    }

    fn bytes(&self) -> usize {
        let names = self.queues.iter().chain(self.handlers.iter().flatten());
        64 + names.map(|name| 3 + name.len()).sum::<usize>() + 80 * self.leases.len()
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = (LeaseRef, Timestamp)> + '_ {
        self.leases.iter().filter_map(|(lease, since)| {
            Some((lease.parse().ok()?, Timestamp::from_micros(*since)))
        })
    }

    /// Merges the report of another server about this worker.
    fn add(&mut self, other: Self) {
        if other.seen > self.seen {
            (self.seen, self.started) = (other.seen, other.started);
            (self.queues, self.handlers) = (other.queues, other.handlers);
        }
        self.running += other.running;
        self.leases.extend(other.leases);
        self.leases.truncate(MOST_LEASES);
    }
}

/// Runs the task of the registry as long as workers call this server.
pub(super) async fn keep(roll: Arc<WorkerRegistry>, engine: Engine, host: ServerHooks) {
    loop {
        let until = Instant::now() + REPORT_INTERVAL;
        while Instant::now() < until {
            // If the read fails, the earlier list stays.
            if let Ok(drains) = drains(&engine).await {
                roll.set_drains(drains);
            }
            roll.looked.send_replace(true);
            let look = if engine.receives_notifications() {
                until
            } else {
                Instant::now() + DRAIN_POLL_INTERVAL
            };
            tokio::select! {
                () = sleep_until(look) => {}
                () = engine.next_broadcast() => {}
                () = host.drain.cancelled() => return,
            }
        }
        let now = (host.clock)();
        roll.forget(now);
        end_drains(&roll, &engine, now).await;
        let note = note(&roll, now);
        let server = engine.server().to_string();
        if note.workers.is_empty() {
            let _gone_when_stale = engine
                .store()
                .put_row(SharedTable::Workers, &server, None)
                .await;
            // Draining of workers that are gone ends here, even if no worker is left.
            if roll.has_drains() {
                continue;
            }
            roll.looked.send_replace(false);
            roll.kept.store(false, Relaxed);
            return;
        }
        let text = serde_json::to_string(&note).expect("names of a map are texts");
        let _told_again = engine
            .store()
            .put_row(SharedTable::Workers, &server, Some(&text))
            .await;
    }
}

/// Ends the draining of workers that are gone. If the store fails, the next round tries again.
async fn end_drains(roll: &WorkerRegistry, engine: &Engine, now: Timestamp) {
    if !roll.has_drains() {
        return;
    }
    let Ok(others) = elsewhere(engine, now).await else {
        return;
    };
    for name in roll.gone_draining(&others.into_iter().map(|(name, _)| name).collect(), now) {
        let _tried_again = engine
            .store()
            .put_row(SharedTable::Draining, &name, None)
            .await;
    }
}

fn note(roll: &WorkerRegistry, now: Timestamp) -> ServerReport {
    let mut bytes = 0;
    let told = roll.workers().into_iter().map(WorkerReport::of);
    let fits = told.take_while(|(name, told)| {
        bytes += name.len() + told.bytes();
        bytes <= MOST_BYTES
    });
    ServerReport {
        at: now.micros(),
        workers: fits.collect(),
    }
}

/// Returns all draining workers. A row that this version cannot parse does not count.
pub(super) async fn drains(engine: &Engine) -> Result<Drains, StoreError> {
    let posted = engine.store().table_rows(SharedTable::Draining).await?;
    Ok(posted
        .into_iter()
        .filter_map(|(name, note)| Some((name, serde_json::from_str(&note).ok()?)))
        .collect())
}

/// Returns the workers of all servers, by name. Those of this server are current.
pub(super) async fn workers(
    roll: &WorkerRegistry,
    engine: &Engine,
    now: Timestamp,
) -> Result<BTreeMap<String, WorkerReport>, StoreError> {
    roll.forget(now);
    let mut all: BTreeMap<String, WorkerReport> =
        roll.workers().into_iter().map(WorkerReport::of).collect();
    for (name, told) in elsewhere(engine, now).await? {
        match all.get_mut(&name) {
            Some(known) => known.add(told),
            None => drop(all.insert(name, told)),
        }
    }
    Ok(all)
}

/// Returns the workers of the other servers.
pub(super) async fn elsewhere(
    engine: &Engine,
    now: Timestamp,
) -> Result<Vec<(String, WorkerReport)>, StoreError> {
    let own = engine.server().to_string();
    let mut all = Vec::new();
    for (server, note) in engine.store().table_rows(SharedTable::Workers).await? {
        match serde_json::from_str(&note) {
            _ if server == own => {}
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
