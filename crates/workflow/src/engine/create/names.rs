//! The names of queues and workflows that the store's registers have, as far as this process knows. What the store loses of them is
//! written again from here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashSet;
use tracing::warn;

use super::NewWorkflow;
use crate::engine::Engine;
use crate::engine::queues::Paused;
use crate::store::error::StoreError;
use crate::store::query::Register;

/// How many names are entered with one call.
const ENTERED: usize = 1_024;

/// The names that were seen in the registers, or entered.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: Mutex<Known>,
    /// Losses of the store after which the names were written again.
    restored: AtomicU64,
}

/// The names of each register.
#[derive(Debug, Default, Clone)]
pub(crate) struct Known {
    pub(crate) queues: HashSet<String>,
    pub(crate) workflows: HashSet<String>,
}

impl Names {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes names that are in the registers.
    pub(crate) fn note(&self, names: Known) {
        let mut known = self.known();
        known.queues.extend(names.queues);
        known.workflows.extend(names.workflows);
    }

    /// How many names of queues and of workflows the registers have at least.
    pub(crate) fn count(&self) -> (usize, usize) {
        let known = self.known();
        (known.queues.len(), known.workflows.len())
    }

    /// Whether a queue of this name was seen.
    pub(crate) fn has_queue(&self, name: &str) -> bool {
        self.known().queues.contains(name)
    }

    /// Names of `new` that may not be in the registers.
    fn unknown(&self, new: &[NewWorkflow]) -> Known {
        let (known, mut unknown) = (self.known(), Known::default());
        for NewWorkflow { graph, .. } in new {
            if !known.workflows.contains(&graph.label.name) {
                unknown.workflows.insert(graph.label.name.clone());
            }
            for job in &graph.jobs {
                if !known.queues.contains(&job.queue) && !unknown.queues.contains(&job.queue) {
                    unknown.queues.insert(job.queue.clone());
                }
            }
        }
        unknown
    }
}

impl Engine {
    /// Enters new names of queues and workflows in the registers, so that they can be listed. Entries of other servers stay: a queue may
    /// have been paused there.
    pub(super) async fn register(&self, new: &[NewWorkflow]) -> Result<(), StoreError> {
        let unknown = self.core.names.unknown(new);
        self.enter_new(&unknown).await?;
        self.core.names.note(unknown);
        Ok(())
    }

    async fn enter_new(&self, new: &Known) -> Result<(), StoreError> {
        let unpaused = |name: &String| (name.clone(), Paused::No.value().to_owned());
        self.enter(Register::Queues, new.queues.iter().map(unpaused)).await?;
        self.enter(Register::Names, new.workflows.iter().map(|name| (name.clone(), String::new()))).await
    }

    /// The queues of the register, each with its value. When it is on a node that is gone, those that this process knows.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(in crate::engine) async fn queue_names(&self) -> Result<Vec<(String, String)>, StoreError> {
        match self.store().register(Register::Queues).await {
            Err(StoreError::Unavailable { .. }) if self.works_in_part() => {
                let paused: HashSet<String> = self.queues().paused().into_iter().collect();
                let known = self.core.names.known().queues.clone();
                let value =
                    |name: &String| if paused.contains(name) { Paused::Yes } else { Paused::No }.value().to_owned();
                Ok(known.into_iter().map(|name| (name.clone(), value(&name))).collect())
            }
            read => read,
        }
    }

    async fn enter(
        &self,
        register: Register,
        entries: impl Iterator<Item = (String, String)>,
    ) -> Result<(), StoreError> {
        let entries: Vec<_> = entries.collect();
        for some in entries.chunks(ENTERED) {
            self.store().add(register, some).await?;
        }
        Ok(())
    }

    /// Writes names again that the store has lost. `before` is what was known before the store was read, `found` what it has, `losses` how
    /// often it was found to have lost its own keys.
    pub(in crate::engine) async fn restore_names(
        &self,
        before: (usize, usize),
        found: (usize, u64),
        losses: u64,
    ) -> Result<(), StoreError> {
        let names = &self.core.names;
        let lost = found.0 < before.0 || found.1 < before.1 as u64;
        if !lost && names.restored.load(Relaxed) == losses {
            return Ok(());
        }
        let known = names.known().clone();
        let paused: HashSet<String> = self.queues().paused().into_iter().collect();
        let all = known.queues.union(&paused).cloned();
        let queues = all.map(|name| {
            let value = if paused.contains(&name) { Paused::Yes } else { Paused::No };
            (name, value.value().to_owned())
        });
        self.enter(Register::Queues, queues).await?;
        self.enter(Register::Names, known.workflows.iter().map(|name| (name.clone(), String::new()))).await?;
        names.restored.store(losses, Relaxed);
        warn!(
            queues = known.queues.len(),
            workflows = known.workflows.len(),
            "names of queues and workflows, which the store had lost, are written again"
        );
        Ok(())
    }
}
