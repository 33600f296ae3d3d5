//! The workers that talk to this server, what they run, and which of all are to drain.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{Claim, Claimed, LeaseRef, Timestamp};
use tokio::sync::watch;

/// Most workers that a server knows.
const MOST_WORKERS: usize = 1_000;
/// Most leases that it knows of all of them, about 15 MB.
const MOST_LEASES: usize = 100_000;
/// Queues and handlers that are kept of a worker.
const MOST_NAMES: usize = 20;
/// A worker that has called nothing for so long, and has no leases, is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(120);
/// How late it may be known which leases are those of one worker: all are looked at to find its own.
const SORTED: Duration = Duration::from_millis(250);

/// A worker as its server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// When it called last.
    pub(super) at: Timestamp,
    /// What its latest claim asked for; the first of each.
    pub(super) queues: Vec<String>,
    pub(super) handlers: Option<Vec<String>>,
    /// When it was last known to ask for anything else: before that, or for more names than are kept.
    asked_else: Option<Timestamp>,
}

/// A worker, and what it has since when.
pub(super) type Listed = (String, Seen, Vec<(LeaseRef, Timestamp)>);

/// Why a worker is to take no more jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Drain {
    /// Microseconds.
    pub(super) since: u64,
    /// The name of the token of whoever wants it.
    pub(super) by: Option<String>,
}

pub(super) type Drains = BTreeMap<String, Drain>;

/// The workers that talk to this server.
#[derive(Debug)]
pub(crate) struct Roll {
    known: Mutex<Known>,
    drains: watch::Sender<Arc<Drains>>,
    /// Whether a task keeps it.
    pub(super) kept: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    workers: HashMap<Arc<str>, Seen>,
    /// One place for each lease, and nothing else: each job comes by here twice.
    leases: HashMap<LeaseRef, Held>,
    /// When a worker was last seen for which there was no room.
    unknown: Option<Timestamp>,
    /// The leases of each worker, when somebody asked last.
    sorted: Option<(Timestamp, Sorted)>,
}

/// A lease.
#[derive(Debug)]
struct Held {
    worker: Arc<str>,
    since: Timestamp,
    until: Timestamp,
}

type Sorted = HashMap<Arc<str>, Vec<(LeaseRef, Timestamp)>>;

impl Known {
    fn sort(&self) -> Sorted {
        let mut sorted = Sorted::new();
        for (lease, held) in &self.leases {
            sorted.entry_ref(&held.worker).or_default().push((*lease, held.since));
        }
        sorted
    }
}

impl Default for Roll {
    fn default() -> Self {
        Self { known: Mutex::default(), drains: watch::Sender::new(Arc::default()), kept: AtomicBool::new(false) }
    }
}

impl Roll {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody has to keep it now: nobody does, and this caller is the first to see that.
    pub(super) fn needs_keeper(&self) -> bool {
        !self.kept.load(Relaxed) && !self.kept.swap(true, Relaxed)
    }

    /// Notes what a worker asks for.
    pub(super) fn note_claim(&self, claim: &Claim, now: Timestamp) {
        let first = |names: &[String]| names[..names.len().min(MOST_NAMES)].to_vec();
        let is = |known: &[String], names: &[String]| *known == names[..names.len().min(MOST_NAMES)];
        let is_cut = |names: &[String]| names.len() > MOST_NAMES;
        let is_cut = is_cut(&claim.queues) || claim.handlers.as_deref().is_some_and(is_cut);
        let mut known = self.known();
        if let Some(seen) = known.workers.get_mut(claim.worker.as_str()) {
            seen.at = now;
            if is_cut {
                seen.asked_else = Some(now);
            }
            if !is(&seen.queues, &claim.queues) {
                seen.queues = first(&claim.queues);
                seen.asked_else = Some(now);
            }
            let same = match (&seen.handlers, &claim.handlers) {
                (Some(seen), Some(names)) => is(seen, names),
                (seen, names) => seen.is_none() && names.is_none(),
            };
            if !same {
                seen.handlers = claim.handlers.as_deref().map(first);
                seen.asked_else = Some(now);
            }
        } else if known.workers.len() < MOST_WORKERS {
            let handlers = claim.handlers.as_deref().map(first);
            let asked_else = is_cut.then_some(now);
            let seen = Seen { at: now, queues: first(&claim.queues), handlers, asked_else };
            known.workers.insert(claim.worker.as_str().into(), seen);
        } else {
            known.unknown = Some(now);
        }
    }

    /// Notes the jobs that a worker got.
    pub(crate) fn note_leases(&self, worker: &str, claimed: &[Claimed], now: Timestamp) {
        if claimed.is_empty() {
            return;
        }
        let mut known = self.known();
        let Known { workers, leases, .. } = &mut *known;
        let Some((name, _)) = workers.get_key_value(worker) else { return };
        let held = |claimed: &Claimed| Held { worker: Arc::clone(name), since: now, until: claimed.expires };
        let room = MOST_LEASES.saturating_sub(leases.len());
        leases.extend(claimed.iter().take(room).map(|claimed| (claimed.lease, held(claimed))));
    }

    /// Notes that leases last longer.
    pub(crate) fn note_extended(&self, extended: impl Iterator<Item = LeaseRef>, until: Timestamp, now: Timestamp) {
        let mut known = self.known();
        let Known { workers, leases, .. } = &mut *known;
        for lease in extended {
            if let Some(held) = leases.get_mut(&lease) {
                held.until = until;
                workers.entry_ref(&held.worker).and_modify(|seen| seen.at = now);
            }
        }
    }

    /// Notes that leases are over.
    pub(crate) fn note_over(&self, over: impl Iterator<Item = LeaseRef>) {
        let mut known = self.known();
        for lease in over {
            known.leases.remove(&lease);
        }
    }

    /// Forgets leases that have ended, and workers that are gone.
    pub(super) fn forget(&self, now: Timestamp) {
        let mut known = self.known();
        let Known { workers, leases, sorted, .. } = &mut *known;
        *sorted = None;
        leases.retain(|_, held| held.until > now);
        // Each lease has the name of its worker.
        workers.retain(|name, seen| Arc::strong_count(name) > 1 || now.since(seen.at) < FORGOTTEN);
    }

    /// All workers, by name.
    pub(super) fn workers(&self) -> Vec<Listed> {
        let known = self.known();
        let mut leases = known.sort();
        let listed = |(name, seen): (&Arc<str>, &Seen)| {
            (name.to_string(), seen.clone(), leases.remove(name).unwrap_or_default())
        };
        let mut all: Vec<Listed> = known.workers.iter().map(listed).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// Whether a worker of this server may take such a job. False: workers ask for its queue, and none of them for its handler.
    pub(crate) fn may_serve(&self, (queue, handler): (&str, &str), now: Timestamp) -> bool {
        let (known, drains) = (self.known(), self.drains.borrow().clone());
        let is_recent = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) < FORGOTTEN);
        if is_recent(known.unknown) {
            return true;
        }
        let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
        let serves = |seen: &Seen| {
            let all = seen.handlers.as_deref().is_none_or(|handlers| has(handlers, handler));
            is_recent(seen.asked_else) || (all && has(&seen.queues, queue))
        };
        let takes_jobs = known.workers.iter().filter(|(name, _)| !drains.contains_key(&***name));
        takes_jobs.map(|(_, seen)| seen).any(serves)
    }

    /// What a worker has, but for what it has got just now.
    pub(super) fn leases_of(&self, worker: &str, now: Timestamp) -> Vec<LeaseRef> {
        let known = &mut *self.known();
        if known.sorted.as_ref().is_none_or(|(at, _)| now.since(*at) > SORTED || *at > now) {
            known.sorted = Some((now, known.sort()));
        }
        let own = known.sorted.as_ref().and_then(|(_, sorted)| sorted.get(worker));
        let own = own.into_iter().flatten().map(|(lease, _)| *lease);
        own.filter(|lease| known.leases.contains_key(lease)).collect()
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

    /// Whether a worker is to take no more jobs.
    pub(crate) fn is_draining(&self, worker: &str) -> bool {
        self.drains.borrow().contains_key(worker)
    }

    /// Returns when a worker is to take no more jobs.
    pub(crate) async fn drained(&self, worker: &str) {
        // The sender is this one, so it lasts.
        let _ = self.drains.subscribe().wait_for(|drains| drains.contains_key(worker)).await;
    }
}
