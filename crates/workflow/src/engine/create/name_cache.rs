//! The names of queues and workflows that this process knows to be in the store's registers. Names
//! that the store loses are written again from this cache.
//!
//! Unused names are removed by [`crate::engine::sweep::name_expiry`], maybe at another server. So
//! this process relies on a name for [`REGISTERED_TTL`] after it entered it, and enters it again
//! when it is used later.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tracing::warn;

use crate::codec::StoreError;
use crate::engine::Engine;
use crate::graph::Graph;
use crate::model::Timestamp;
use crate::queue::Paused;
use crate::store::{Register, Verification};

/// Names that one call enters.
const REGISTER_BATCH: usize = 1_024;
/// Names that one call reads at the start.
const PAGE_NAMES: usize = 4_096;
/// The time for which a name is certainly in its register after it was entered.
pub(crate) const REGISTERED_TTL: Duration = Duration::from_secs(3_600);
/// Maximum bytes of remembered names, and the bytes that each takes in addition to its text. Above
/// it the cache is cleared, so names are entered more often.
const MAX_CACHE_BYTES: usize = 32 << 20;
const NAME_OVERHEAD_BYTES: usize = 64;

/// The names that were read from the registers or entered.
#[derive(Debug, Default)]
pub(crate) struct NameCache {
    names: Mutex<RegisterNames>,
    /// The loss counter of the store at the latest restoration of names.
    restored: AtomicU64,
}

/// Names, each with the time at which this process entered it. `None` if it did not.
type EntryTimes = HashMap<String, Option<Timestamp>>;

/// The names of each register.
#[derive(Debug, Default)]
struct RegisterNames {
    queues: EntryTimes,
    workflows: EntryTimes,
    bytes: usize,
}

/// Names that must be entered.
#[derive(Debug, Default)]
struct MissingNames {
    queues: HashSet<String>,
    workflows: HashSet<String>,
}

/// Whether a name with this entry time is certainly in its register.
fn is_registered(entered: Option<&Option<Timestamp>>, now: Timestamp) -> bool {
    entered.is_some_and(|entered| entered.is_some_and(|at| now.since(at) < REGISTERED_TTL))
}

impl RegisterNames {
    fn names_mut(&mut self, register: Register) -> &mut EntryTimes {
        match register {
            Register::Queues => &mut self.queues,
            Register::Names => &mut self.workflows,
        }
    }

    fn record(
        &mut self,
        register: Register,
        names: impl IntoIterator<Item = String>,
        at: Option<Timestamp>,
    ) {
        for name in names {
            let bytes = name.len() + NAME_OVERHEAD_BYTES;
            if self.names_mut(register).insert(name, at).is_none() {
                self.bytes += bytes;
            }
        }
        if self.bytes > MAX_CACHE_BYTES {
            *self = Self::default();
        }
    }
}

impl NameCache {
    fn lock(&self) -> MutexGuard<'_, RegisterNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that names are in a register. `at` is the time at which this process entered them,
    /// if it did.
    pub(crate) fn record(
        &self,
        register: Register,
        names: impl IntoIterator<Item = String>,
        at: Option<Timestamp>,
    ) {
        self.lock().record(register, names, at);
    }

    /// Forgets names that were removed from a register.
    pub(crate) fn forget(&self, register: Register, names: &[String]) {
        let mut known = self.lock();
        for name in names {
            if known.names_mut(register).remove(name).is_some() {
                known.bytes -= name.len() + NAME_OVERHEAD_BYTES;
            }
        }
    }

    /// Lower bounds of the numbers of registered queues and workflows: names that were entered
    /// lately.
    pub(crate) fn count(&self, now: Timestamp) -> [usize; 2] {
        let known = self.lock();
        let counts = |at: &&Option<Timestamp>| is_registered(Some(*at), now);
        [&known.queues, &known.workflows].map(|names| names.values().filter(counts).count())
    }

    /// Whether a queue of this name is known.
    pub(crate) fn has_queue(&self, name: &str) -> bool {
        self.lock().queues.contains_key(name)
    }

    /// Names in these graphs that may be missing in the registers.
    fn missing_names<'a>(
        &self,
        new: impl Iterator<Item = &'a Graph>,
        now: Timestamp,
    ) -> MissingNames {
        let known = self.lock();
        let mut missing = MissingNames::default();
        for graph in new {
            if !is_registered(known.workflows.get(&graph.label.name), now) {
                missing.workflows.insert(graph.label.name.clone());
            }
            for job in graph.jobs.iter() {
                if !missing.queues.contains(&job.queue)
                    && !is_registered(known.queues.get(&job.queue), now)
                {
                    missing.queues.insert(job.queue.clone());
                }
            }
        }
        missing
    }
}

/// The register entry of a workflow name: it has no value.
fn workflow_entry(name: String) -> (String, String) {
    (name, String::new())
}

/// The register entry of a queue.
fn queue_entry(name: String, paused: &HashSet<String>) -> (String, String) {
    let value = Paused::from_flag(paused.contains(&name)).value();
    (name, value.to_owned())
}

impl Engine {
    /// Enters new names of queues and workflows in the registers, so that they can be listed.
    /// Existing entries stay, because another server may have paused a queue.
    pub(super) async fn register<'a>(
        &self,
        new: impl Iterator<Item = &'a Graph> + Clone,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let labels = new.clone().map(|graph| &graph.label);
        self.core.seen_tags.record(labels);
        let MissingNames { queues, workflows } = self.core.name_cache.missing_names(new, now);
        let unpaused = |name: &String| (name.clone(), Paused::No.value().to_owned());
        tokio::try_join!(
            self.enter_names(Register::Queues, queues.iter().map(unpaused), now),
            self.enter_names(
                Register::Names,
                workflows.iter().cloned().map(workflow_entry),
                now
            ),
        )?;
        if !queues.is_empty() || !workflows.is_empty() {
            self.core
                .name_cache
                .record(Register::Queues, queues, Some(now));
            self.core
                .name_cache
                .record(Register::Names, workflows, Some(now));
        }
        Ok(())
    }

    /// At most `limit` registered queues after a name, each with its value. If the register is on a
    /// node that is gone, the queues that this process knows.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(in crate::engine) async fn queue_names(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        match self
            .store()
            .register_page(Register::Queues, after, limit)
            .await
        {
            Err(StoreError::Unavailable { .. }) if self.is_partially_available() => {
                let paused: HashSet<String> = self.queues().paused().into_iter().collect();
                let entry = |name| queue_entry(name, &paused);
                let mut known: Vec<String> =
                    self.core.name_cache.lock().queues.keys().cloned().collect();
                known.retain(|name| after.is_none_or(|after| name.as_str() > after));
                known.sort_unstable();
                known.truncate(limit);
                Ok(known.into_iter().map(entry).collect())
            }
            read => read,
        }
    }

    /// At most `limit` registered names of workflows after a name. If the register is on a node that
    /// is gone, the names that this process knows.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(in crate::engine) async fn workflow_names(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let page = self.store().register_page(Register::Names, after, limit);
        match page.await {
            Err(StoreError::Unavailable { .. }) if self.is_partially_available() => {
                let known = self.core.name_cache.lock();
                let mut known: Vec<String> = known.workflows.keys().cloned().collect();
                known.retain(|name| after.is_none_or(|after| name.as_str() > after));
                known.sort_unstable();
                known.truncate(limit);
                Ok(known)
            }
            read => Ok(read?.into_iter().map(|(name, _)| name).collect()),
        }
    }

    pub(in crate::engine) async fn enter_names(
        &self,
        register: Register,
        entries: impl Iterator<Item = (String, String)>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let entries: Vec<_> = entries.collect();
        for batch in entries.chunks(REGISTER_BATCH) {
            self.store().add_entries(register, batch, now).await?;
        }
        Ok(())
    }

    /// Reads the names of the registers at the start, up to the bound of the cache.
    pub(in crate::engine) async fn read_known_names(&self) -> Result<(), StoreError> {
        for register in [Register::Queues, Register::Names] {
            let mut last = None::<String>;
            let mut bytes = 0;
            while bytes < MAX_CACHE_BYTES / 4 {
                let page = self
                    .store()
                    .register_page(register, last.as_deref(), PAGE_NAMES)
                    .await?;
                let is_last = page.len() < PAGE_NAMES;
                last = page.last().map(|(name, _)| name.clone());
                bytes += page
                    .iter()
                    .map(|(name, _)| name.len() + NAME_OVERHEAD_BYTES)
                    .sum::<usize>();
                self.core
                    .name_cache
                    .record(register, page.into_iter().map(|(name, _)| name), None);
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Enters names again that the store has lost. `before` are the counts of this process before
    /// the store was read.
    pub(in crate::engine) async fn restore_names(
        &self,
        before: [usize; 2],
        registers: Verification,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let names = &self.core.name_cache;
        let lost = before
            .iter()
            .zip(registers.names)
            .any(|(&before, registers)| registers < before as u64);
        if !lost && names.restored.load(Relaxed) == registers.losses {
            return Ok(());
        }
        let paused: HashSet<String> = self.queues().paused().into_iter().collect();
        let (queues, workflows): (HashSet<String>, Vec<String>) = {
            let known = names.lock();
            (
                known.queues.keys().chain(&paused).cloned().collect(),
                known.workflows.keys().cloned().collect(),
            )
        };
        let numbers = (queues.len(), workflows.len());
        let queues = queues.into_iter().map(|name| queue_entry(name, &paused));
        self.enter_names(Register::Queues, queues, now).await?;
        self.enter_names(
            Register::Names,
            workflows.into_iter().map(workflow_entry),
            now,
        )
        .await?;
        names.restored.store(registers.losses, Relaxed);
        warn!(
            queues = numbers.0,
            workflows = numbers.1,
            "names of queues and workflows, which the store had lost, are written again"
        );
        Ok(())
    }
}
