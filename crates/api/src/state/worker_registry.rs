//! Registry of the workers that call this server, their leases, and all draining workers.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{Claim, Claimed, LeaseRef, Timestamp};
use tokio::sync::watch;

use crate::http::lock;

/// Most workers that a server keeps.
const MAX_WORKERS: usize = 1_000;
/// Most leases that a server keeps for all workers, about 15 MB.
const MAX_LEASES: usize = 100_000;
/// Most queues and handlers that are kept of a worker.
const MAX_NAMES: usize = 20;
/// Time after which a worker without calls and leases is forgotten.
const IDLE_TTL: Duration = Duration::from_secs(120);
/// Longest age of the index of leases by worker. It is made of all leases.
const LEASE_INDEX_TTL: Duration = Duration::from_millis(250);

/// Worker as its server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerRecord {
    /// Time of the last call.
    pub(crate) seen_at: Timestamp,
    /// First queues and handlers of the latest claim.
    pub(crate) queues: Vec<String>,
    pub(crate) handlers: Option<Vec<String>>,
    /// Start time of its process, if its latest claim reports it.
    pub(crate) started: Option<Timestamp>,
    /// Time at which its queues or handlers last changed, or were more than are kept.
    filters_changed_at: Option<Timestamp>,
}

impl WorkerRecord {
    /// Sets the queues and handlers. Returns whether they differ from those of the last claim, as
    /// far as is known.
    fn set_filters(&mut self, claim: &Claim) -> bool {
        let mut has_changed = has_more_names(claim);
        let queues = first_names(&claim.queues);
        if self.queues != queues {
            self.queues = queues.to_vec();
            has_changed = true;
        }
        let handlers = claim.handlers.as_deref().map(first_names);
        if self.handlers.as_deref() != handlers {
            self.handlers = handlers.map(<[_]>::to_vec);
            has_changed = true;
        }
        has_changed
    }

    /// Whether the worker claims such jobs, by its latest claim.
    fn serves(&self, queue: &str, handler: &str) -> bool {
        let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
        let handlers = self.handlers.as_deref();
        handlers.is_none_or(|handlers| has(handlers, handler)) && has(&self.queues, queue)
    }
}

/// Returns the queues or handlers that are kept of a claim.
fn first_names(names: &[String]) -> &[String] {
    &names[..names.len().min(MAX_NAMES)]
}

/// Whether a claim has more queues or handlers than are kept.
fn has_more_names(claim: &Claim) -> bool {
    let handlers = claim.handlers.as_ref().map_or(0, Vec::len);
    claim.queues.len().max(handlers) > MAX_NAMES
}

/// Worker, and its leases with the time of each claim.
pub(crate) type ListedWorker = (String, WorkerRecord, Vec<(LeaseRef, Timestamp)>);

/// Request that a worker takes no more jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drain {
    /// Time of the request in microseconds.
    pub(crate) since: u64,
    /// Name of the token of the caller.
    pub(crate) by: Option<String>,
}

impl Drain {
    /// Whether a process that started at this time drains. A process with an unknown start does.
    pub(crate) fn is_for(&self, started: Option<Timestamp>) -> bool {
        started.is_none_or(|started| started.micros() <= self.since)
    }
}

pub(crate) type DrainingWorkers = BTreeMap<String, Drain>;

/// Process of a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerProcess<'a> {
    pub(crate) worker: &'a str,
    /// Start time, if the worker reports it.
    pub(crate) started: Option<Timestamp>,
}

impl WorkerProcess<'_> {
    pub(crate) fn drains(&self, drains: &DrainingWorkers) -> bool {
        drains
            .get(self.worker)
            .is_some_and(|drain| drain.is_for(self.started))
    }
}

/// Registry of the workers that call this server.
#[derive(Debug)]
pub(crate) struct WorkerRegistry {
    state: Mutex<RegistryState>,
    drains: watch::Sender<Arc<DrainingWorkers>>,
    /// Whether the draining workers were read since the task of the registry started.
    pub(crate) drains_read: watch::Sender<bool>,
    /// Whether the registry has a task.
    pub(crate) has_task: AtomicBool,
}

#[derive(Debug, Default)]
struct RegistryState {
    workers: HashMap<Arc<str>, WorkerRecord>,
    /// One entry for each lease, and nothing else: each job adds and removes one.
    leases: HashMap<LeaseRef, HeldLease>,
    /// Latest time at which a worker did not fit in.
    overflowed_at: Option<Timestamp>,
    /// Draining workers that have called no server, and the time since which they have not.
    unseen_drains: BTreeMap<String, Timestamp>,
    /// Index of leases by worker, and the time at which it was made.
    lease_index: Option<(Timestamp, LeaseIndex)>,
}

/// Lease of a worker.
#[derive(Debug)]
struct HeldLease {
    worker: Arc<str>,
    since: Timestamp,
    until: Timestamp,
}

type LeaseIndex = HashMap<Arc<str>, Vec<(LeaseRef, Timestamp)>>;

impl RegistryState {
    fn index_leases(&self) -> LeaseIndex {
        let mut index = LeaseIndex::new();
        for (lease, held) in &self.leases {
            index
                .entry_ref(&held.worker)
                .or_default()
                .push((*lease, held.since));
        }
        index
    }
}

impl Default for WorkerRegistry {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            drains: watch::Sender::new(Arc::default()),
            drains_read: watch::Sender::new(false),
            has_task: AtomicBool::new(false),
        }
    }
}

impl WorkerRegistry {
    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        lock(&self.state)
    }

    /// Whether this caller has to start the task of the registry: none runs, and it is the first to
    /// see that.
    pub(crate) fn claim_task(&self) -> bool {
        !self.has_task.load(Relaxed) && !self.has_task.swap(true, Relaxed)
    }

    /// Records the queues and handlers of a claim.
    pub(crate) fn record_claim(&self, claim: &Claim, started: Option<Timestamp>, now: Timestamp) {
        let mut state = self.lock();
        if let Some(record) = state.workers.get_mut(claim.worker.as_str()) {
            (record.seen_at, record.started) = (now, started);
            if record.set_filters(claim) {
                record.filters_changed_at = Some(now);
            }
        } else if state.workers.len() < MAX_WORKERS {
            let record = WorkerRecord {
                seen_at: now,
                queues: first_names(&claim.queues).to_vec(),
                handlers: claim
                    .handlers
                    .as_deref()
                    .map(first_names)
                    .map(<[_]>::to_vec),
                started,
                filters_changed_at: has_more_names(claim).then_some(now),
            };
            state.workers.insert(claim.worker.as_str().into(), record);
        } else {
            state.overflowed_at = Some(now);
        }
    }

    /// Records the jobs that a worker got.
    pub(crate) fn record_leases(&self, worker: &str, claimed: &[Claimed], now: Timestamp) {
        if claimed.is_empty() {
            return;
        }
        let mut state = self.lock();
        let RegistryState {
            workers, leases, ..
        } = &mut *state;
        let Some((name, _)) = workers.get_key_value(worker) else {
            return;
        };
        let held = |claimed: &Claimed| HeldLease {
            worker: Arc::clone(name),
            since: now,
            until: claimed.expires,
        };
        let capacity = MAX_LEASES.saturating_sub(leases.len());
        leases.extend(
            claimed
                .iter()
                .take(capacity)
                .map(|claimed| (claimed.lease, held(claimed))),
        );
    }

    /// Records that leases were extended.
    pub(crate) fn record_extended(
        &self,
        extended: impl Iterator<Item = LeaseRef>,
        until: Timestamp,
        now: Timestamp,
    ) {
        let mut state = self.lock();
        let RegistryState {
            workers, leases, ..
        } = &mut *state;
        for lease in extended {
            if let Some(held) = leases.get_mut(&lease) {
                held.until = until;
                workers
                    .entry_ref(&held.worker)
                    .and_modify(|record| record.seen_at = now);
            }
        }
    }

    /// Records that leases are over.
    pub(crate) fn record_ended(&self, ended: impl Iterator<Item = LeaseRef>) {
        let mut state = self.lock();
        for lease in ended {
            state.leases.remove(&lease);
        }
    }

    /// Removes leases that have ended, and workers that are gone.
    pub(crate) fn remove_expired(&self, now: Timestamp) {
        let mut state = self.lock();
        let RegistryState {
            workers,
            leases,
            lease_index,
            ..
        } = &mut *state;
        *lease_index = None;
        leases.retain(|_, held| held.until > now);
        // Each lease shares the name of its worker.
        workers.retain(|name, record| {
            Arc::strong_count(name) > 1 || now.since(record.seen_at) < IDLE_TTL
        });
    }

    /// Returns all workers, by name.
    pub(crate) fn workers(&self) -> Vec<ListedWorker> {
        let state = self.lock();
        let mut leases = state.index_leases();
        let listed = |(name, record): (&Arc<str>, &WorkerRecord)| {
            (
                name.to_string(),
                record.clone(),
                leases.remove(name).unwrap_or_default(),
            )
        };
        let mut all: Vec<ListedWorker> = state.workers.iter().map(listed).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// Whether a worker of this server may take such a job. False if no worker that claims from the
    /// queue has the handler.
    pub(crate) fn may_serve(&self, queue: &str, handler: &str, now: Timestamp) -> bool {
        let state = self.lock();
        let drains = self.drains.borrow().clone();
        let is_recent = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) < IDLE_TTL);
        if is_recent(state.overflowed_at) {
            return true;
        }
        state.workers.iter().any(|(name, record)| {
            let process = WorkerProcess {
                worker: name,
                started: record.started,
            };
            let serves = is_recent(record.filters_changed_at) || record.serves(queue, handler);
            serves && !process.drains(&drains)
        })
    }

    /// Returns the leases of a worker. Those of the last quarter of a second may be missing.
    pub(crate) fn leases_of(&self, worker: &str, now: Timestamp) -> Vec<LeaseRef> {
        let state = &mut *self.lock();
        if state
            .lease_index
            .as_ref()
            .is_none_or(|(at, _)| now.since(*at) > LEASE_INDEX_TTL || *at > now)
        {
            state.lease_index = Some((now, state.index_leases()));
        }
        let own = state
            .lease_index
            .as_ref()
            .and_then(|(_, lease_index)| lease_index.get(worker));
        let own = own.into_iter().flatten().map(|(lease, _)| *lease);
        own.filter(|lease| state.leases.contains_key(lease))
            .collect()
    }

    pub(crate) fn subscribe_drains(&self) -> watch::Receiver<Arc<DrainingWorkers>> {
        self.drains.subscribe()
    }

    pub(crate) fn set_drains(&self, drains: DrainingWorkers) {
        self.drains.send_if_modified(|current| {
            let changed = **current != drains;
            *current = Arc::new(drains);
            changed
        });
    }

    /// Whether a process takes no more jobs.
    pub(crate) fn is_draining(&self, process: &WorkerProcess<'_>) -> bool {
        process.drains(&self.drains.borrow())
    }

    /// Returns the process of this name that has run for `uptime`. Without an uptime it is the
    /// process that claimed last at this server.
    pub(crate) fn process<'a>(
        &self,
        worker: &'a str,
        uptime: Option<Duration>,
        now: Timestamp,
    ) -> WorkerProcess<'a> {
        let last_start = || self.lock().workers.get(worker)?.started;
        WorkerProcess {
            worker,
            started: uptime.map(|uptime| now.before(uptime)).or_else(last_start),
        }
    }

    /// Returns draining workers that are gone: for two minutes they have called no server.
    /// `at_others` has the workers of other servers.
    pub(crate) fn gone_draining(&self, at_others: &HashSet<String>, now: Timestamp) -> Vec<String> {
        let drains = self.drains.borrow().clone();
        let RegistryState {
            workers,
            unseen_drains,
            ..
        } = &mut *self.lock();
        let is_seen =
            |name: &String| workers.contains_key(name.as_str()) || at_others.contains(name);
        unseen_drains.retain(|name, _| drains.contains_key(name) && !is_seen(name));
        for name in drains.keys().filter(|name| !is_seen(name)) {
            unseen_drains.entry(name.clone()).or_insert(now);
        }
        let gone = unseen_drains
            .iter()
            .filter(|(_, since)| now.since(**since) >= IDLE_TTL);
        gone.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn has_drains(&self) -> bool {
        !self.drains.borrow().is_empty()
    }

    /// Returns when the process is to take no more jobs.
    pub(crate) async fn drained(&self, process: &WorkerProcess<'_>) {
        // The sender belongs to `self`, so it is not dropped.
        let _ = self
            .drains
            .subscribe()
            .wait_for(|drains| process.drains(drains))
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_795_000_000_000_000);

    fn claim(worker: &str) -> Claim {
        let queues = vec!["default".to_owned()];
        let lease = Duration::from_secs(30);
        Claim {
            queues,
            handlers: None,
            worker: worker.to_owned(),
            limit: 1,
            lease,
        }
    }

    fn draining(worker: &str) -> WorkerRegistry {
        let roll = WorkerRegistry::default();
        roll.set_drains(DrainingWorkers::from([(
            worker.to_owned(),
            Drain {
                since: NOW.micros(),
                by: None,
            },
        )]));
        roll
    }

    /// A worker that was restarted under its old name ended at once, after each restart.
    #[test]
    fn a_worker_that_started_after_it_was_drained_works() {
        let roll = draining("worker-0");
        let started = |started| WorkerProcess {
            worker: "worker-0",
            started,
        };
        let second = Duration::from_secs(1);
        assert!(roll.is_draining(&started(Some(NOW.before(second)))));
        assert!(!roll.is_draining(&started(Some(NOW + second))));
        assert!(
            roll.is_draining(&started(None)),
            "it does not say when it started"
        );
        roll.record_claim(&claim("worker-0"), Some(NOW + second), NOW + second * 2);
        assert!(
            !roll.is_draining(&roll.process("worker-0", None, NOW + second * 3)),
            "its claim has said it"
        );
        assert!(roll.may_serve("default", "handler", NOW + second * 3));
    }

    #[test]
    fn the_drain_of_a_worker_that_is_gone_ends() {
        let roll = draining("worker-0");
        let none = HashSet::new();
        roll.record_claim(&claim("worker-0"), None, NOW);
        let later = |seconds| NOW + Duration::from_secs(seconds);
        assert_eq!(
            roll.gone_draining(&none, later(300)),
            Vec::<String>::new(),
            "it is known here"
        );
        roll.remove_expired(later(300));
        assert_eq!(
            roll.gone_draining(&HashSet::from(["worker-0".to_owned()]), later(300)),
            Vec::<String>::new()
        );
        assert_eq!(
            roll.gone_draining(&none, later(301)),
            Vec::<String>::new(),
            "since just now"
        );
        assert_eq!(roll.gone_draining(&none, later(420)), Vec::<String>::new());
        assert_eq!(roll.gone_draining(&none, later(421)), ["worker-0"]);
    }
}
