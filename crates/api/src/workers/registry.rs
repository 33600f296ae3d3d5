//! Registry of the workers that call this server, their leases, and all draining workers.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{Claim, Claimed, LeaseRef, Timestamp};
use tokio::sync::watch;

/// Most workers that a server keeps.
const MOST_WORKERS: usize = 1_000;
/// Most leases that a server keeps for all workers, about 15 MB.
const MOST_LEASES: usize = 100_000;
/// Most queues and handlers that are kept of a worker.
const MOST_NAMES: usize = 20;
/// Time after which a worker without calls and leases is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(120);
/// Longest age of the index of leases by worker. It is made of all leases.
const SORTED: Duration = Duration::from_millis(250);

/// Worker as its server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerRecord {
    /// Time of the last call.
    pub(super) at: Timestamp,
    /// First queues and handlers of the latest claim.
    pub(super) queues: Vec<String>,
    pub(super) handlers: Option<Vec<String>>,
    /// Start time of its process, if its latest claim reports it.
    pub(super) started: Option<Timestamp>,
    /// Time at which its queues or handlers last changed, or were more than are kept.
    filters_changed_at: Option<Timestamp>,
}

/// Worker, and its leases with the time of each claim.
pub(super) type Listed = (String, WorkerRecord, Vec<(LeaseRef, Timestamp)>);

/// Request that a worker takes no more jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Drain {
    /// Time of the request in microseconds.
    pub(super) since: u64,
    /// Name of the token of the caller.
    pub(super) by: Option<String>,
}

impl Drain {
    /// Whether a process that started at this time drains. A process with an unknown start does.
    pub(super) fn is_for(&self, started: Option<Timestamp>) -> bool {
        started.is_none_or(|started| started.micros() <= self.since)
    }
}

pub(super) type Drains = BTreeMap<String, Drain>;

/// Process of a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process<'a> {
    pub(crate) worker: &'a str,
    /// Start time, if the worker reports it.
    pub(crate) started: Option<Timestamp>,
}

impl Process<'_> {
    pub(super) fn drains(&self, drains: &Drains) -> bool {
        drains
            .get(self.worker)
            .is_some_and(|drain| drain.is_for(self.started))
    }
}

/// Registry of the workers that call this server.
#[derive(Debug)]
pub(crate) struct WorkerRegistry {
    known: Mutex<RegistryState>,
    drains: watch::Sender<Arc<Drains>>,
    /// Whether the draining workers were read since the task of the registry started.
    pub(super) looked: watch::Sender<bool>,
    /// Whether the registry has a task.
    pub(super) kept: AtomicBool,
}

#[derive(Debug, Default)]
struct RegistryState {
    workers: HashMap<Arc<str>, WorkerRecord>,
    /// One entry for each lease, and nothing else: each job adds and removes one.
    leases: HashMap<LeaseRef, HeldLease>,
    /// Latest time at which a worker did not fit in.
    unknown: Option<Timestamp>,
    /// Draining workers that have called no server, and the time since which they have not.
    unseen: BTreeMap<String, Timestamp>,
    /// Index of leases by worker, and the time at which it was made.
    sorted: Option<(Timestamp, Sorted)>,
}

/// Lease of a worker.
#[derive(Debug)]
struct HeldLease {
    worker: Arc<str>,
    since: Timestamp,
    until: Timestamp,
}

type Sorted = HashMap<Arc<str>, Vec<(LeaseRef, Timestamp)>>;

impl RegistryState {
    fn sort(&self) -> Sorted {
        let mut sorted = Sorted::new();
        for (lease, held) in &self.leases {
            sorted
                .entry_ref(&held.worker)
                .or_default()
                .push((*lease, held.since));
        }
        sorted
    }
}

impl Default for WorkerRegistry {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            drains: watch::Sender::new(Arc::default()),
            looked: watch::Sender::new(false),
            kept: AtomicBool::new(false),
        }
    }
}

impl WorkerRegistry {
    fn known(&self) -> MutexGuard<'_, RegistryState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this caller has to start the task of the registry: none runs, and it is the first to
    /// see that.
    pub(super) fn needs_keeper(&self) -> bool {
        !self.kept.load(Relaxed) && !self.kept.swap(true, Relaxed)
    }

    /// Records the queues and handlers of a claim.
    pub(super) fn note_claim(&self, claim: &Claim, started: Option<Timestamp>, now: Timestamp) {
        let first = |names: &[String]| names[..names.len().min(MOST_NAMES)].to_vec();
        let is =
            |known: &[String], names: &[String]| *known == names[..names.len().min(MOST_NAMES)];
        let is_cut = |names: &[String]| names.len() > MOST_NAMES;
        let is_cut = is_cut(&claim.queues) || claim.handlers.as_deref().is_some_and(is_cut);
        let mut known = self.known();
        if let Some(seen) = known.workers.get_mut(claim.worker.as_str()) {
            (seen.at, seen.started) = (now, started);
            if is_cut {
                seen.filters_changed_at = Some(now);
            }
            if !is(&seen.queues, &claim.queues) {
                seen.queues = first(&claim.queues);
                seen.filters_changed_at = Some(now);
            }
            let same = match (&seen.handlers, &claim.handlers) {
                (Some(seen), Some(names)) => is(seen, names),
                (seen, names) => seen.is_none() && names.is_none(),
            };
            if !same {
                seen.handlers = claim.handlers.as_deref().map(first);
                seen.filters_changed_at = Some(now);
            }
        } else if known.workers.len() < MOST_WORKERS {
            let handlers = claim.handlers.as_deref().map(first);
            let asked_else = is_cut.then_some(now);
            let seen = WorkerRecord {
                at: now,
                queues: first(&claim.queues),
                handlers,
                started,
                filters_changed_at: asked_else,
            };
            known.workers.insert(claim.worker.as_str().into(), seen);
        } else {
            known.unknown = Some(now);
        }
    }

    /// Records the jobs that a worker got.
    pub(crate) fn note_leases(&self, worker: &str, claimed: &[Claimed], now: Timestamp) {
        if claimed.is_empty() {
            return;
        }
        let mut known = self.known();
        let RegistryState {
            workers, leases, ..
        } = &mut *known;
        let Some((name, _)) = workers.get_key_value(worker) else {
            return;
        };
        let held = |claimed: &Claimed| HeldLease {
            worker: Arc::clone(name),
            since: now,
            until: claimed.expires,
        };
        let room = MOST_LEASES.saturating_sub(leases.len());
        leases.extend(
            claimed
                .iter()
                .take(room)
                .map(|claimed| (claimed.lease, held(claimed))),
        );
    }

    /// Records that leases were extended.
    pub(crate) fn note_extended(
        &self,
        extended: impl Iterator<Item = LeaseRef>,
        until: Timestamp,
        now: Timestamp,
    ) {
        let mut known = self.known();
        let RegistryState {
            workers, leases, ..
        } = &mut *known;
        for lease in extended {
            if let Some(held) = leases.get_mut(&lease) {
                held.until = until;
                workers
                    .entry_ref(&held.worker)
                    .and_modify(|seen| seen.at = now);
            }
        }
    }

    /// Records that leases are over.
    pub(crate) fn note_over(&self, over: impl Iterator<Item = LeaseRef>) {
        let mut known = self.known();
        for lease in over {
            known.leases.remove(&lease);
        }
    }

    /// Removes leases that have ended, and workers that are gone.
    pub(super) fn forget(&self, now: Timestamp) {
        let mut known = self.known();
        let RegistryState {
            workers,
            leases,
            sorted,
            ..
        } = &mut *known;
        *sorted = None;
        leases.retain(|_, held| held.until > now);
        // Each lease shares the name of its worker.
        workers.retain(|name, seen| Arc::strong_count(name) > 1 || now.since(seen.at) < FORGOTTEN);
    }

    /// Returns all workers, by name.
    pub(super) fn workers(&self) -> Vec<Listed> {
        let known = self.known();
        let mut leases = known.sort();
        let listed = |(name, seen): (&Arc<str>, &WorkerRecord)| {
            (
                name.to_string(),
                seen.clone(),
                leases.remove(name).unwrap_or_default(),
            )
        };
        let mut all: Vec<Listed> = known.workers.iter().map(listed).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// Whether a worker of this server may take such a job. False if no worker that claims from the
    /// queue has the handler.
    pub(crate) fn may_serve(&self, queue: &str, handler: &str, now: Timestamp) -> bool {
        let known = self.known();
        let drains = self.drains.borrow().clone();
        let is_recent = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) < FORGOTTEN);
        if is_recent(known.unknown) {
            return true;
        }
        let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
        let serves = |seen: &WorkerRecord| {
            let all = seen
                .handlers
                .as_deref()
                .is_none_or(|handlers| has(handlers, handler));
            is_recent(seen.filters_changed_at) || (all && has(&seen.queues, queue))
        };
        let process = |name, seen: &WorkerRecord| Process {
            worker: name,
            started: seen.started,
        };
        let takes_jobs = known
            .workers
            .iter()
            .filter(|(name, seen)| !process(name, seen).drains(&drains));
        takes_jobs.map(|(_, seen)| seen).any(serves)
    }

    /// Returns the leases of a worker. Those of the last quarter of a second may be missing.
    pub(super) fn leases_of(&self, worker: &str, now: Timestamp) -> Vec<LeaseRef> {
        let known = &mut *self.known();
        if known
            .sorted
            .as_ref()
            .is_none_or(|(at, _)| now.since(*at) > SORTED || *at > now)
        {
            known.sorted = Some((now, known.sort()));
        }
        let own = known
            .sorted
            .as_ref()
            .and_then(|(_, sorted)| sorted.get(worker));
        let own = own.into_iter().flatten().map(|(lease, _)| *lease);
        own.filter(|lease| known.leases.contains_key(lease))
            .collect()
    }

    pub(super) fn follow(&self) -> watch::Receiver<Arc<Drains>> {
        self.drains.subscribe()
    }

    pub(super) fn set_drains(&self, drains: Drains) {
        self.drains.send_if_modified(|known| {
            let changed = **known != drains;
            *known = Arc::new(drains);
            changed
        });
    }

    /// Whether a process takes no more jobs.
    pub(crate) fn is_draining(&self, process: &Process<'_>) -> bool {
        process.drains(&self.drains.borrow())
    }

    /// Returns the process of this name that has run for `uptime`. Without an uptime it is the
    /// process that claimed last at this server.
    pub(crate) fn process<'a>(
        &self,
        worker: &'a str,
        uptime: Option<Duration>,
        now: Timestamp,
    ) -> Process<'a> {
        let known = || self.known().workers.get(worker)?.started;
        Process {
            worker,
            started: uptime.map(|uptime| now.before(uptime)).or_else(known),
        }
    }

    /// Returns draining workers that are gone: for two minutes they have called no server.
    /// `at_others` has the workers of other servers.
    pub(super) fn gone_draining(&self, at_others: &HashSet<String>, now: Timestamp) -> Vec<String> {
        let drains = self.drains.borrow().clone();
        let RegistryState {
            workers, unseen, ..
        } = &mut *self.known();
        let is_seen =
            |name: &String| workers.contains_key(name.as_str()) || at_others.contains(name);
        unseen.retain(|name, _| drains.contains_key(name) && !is_seen(name));
        for name in drains.keys().filter(|name| !is_seen(name)) {
            unseen.entry(name.clone()).or_insert(now);
        }
        let gone = unseen
            .iter()
            .filter(|(_, since)| now.since(**since) >= FORGOTTEN);
        gone.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn has_drains(&self) -> bool {
        !self.drains.borrow().is_empty()
    }

    /// Returns when the process is to take no more jobs.
    pub(crate) async fn drained(&self, process: &Process<'_>) {
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
        roll.set_drains(Drains::from([(
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
        let started = |started| Process {
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
        roll.note_claim(&claim("worker-0"), Some(NOW + second), NOW + second * 2);
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
        roll.note_claim(&claim("worker-0"), None, NOW);
        let later = |seconds| NOW + Duration::from_secs(seconds);
        assert_eq!(
            roll.gone_draining(&none, later(300)),
            Vec::<String>::new(),
            "it is known here"
        );
        roll.forget(later(300));
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
