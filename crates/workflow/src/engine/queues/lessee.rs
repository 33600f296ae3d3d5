//! Workers that wait and get jobs with the write that makes these ready, without a claim of their own.

use std::mem;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::Queues;
use super::queue::{Queue, Waiter};
use crate::engine::desk::answer::Leased;
use crate::id::{JobIndex, WorkflowId};
use crate::state::Worker;

/// What a worker that waits would claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lessee {
    pub(crate) worker: Worker,
    pub(crate) lease: Duration,
    /// How many jobs at most.
    pub(crate) limit: usize,
}

/// What a worker that waits was handed.
#[derive(Debug)]
pub(super) enum Handed {
    Jobs(Vec<(WorkflowId, Leased)>),
    /// It has left.
    Left,
}

impl Default for Handed {
    fn default() -> Self {
        Self::Jobs(Vec::new())
    }
}

/// A ready job for which a worker is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForWhom<'a> {
    pub(crate) queue: &'a str,
    pub(crate) handler: &'a str,
    pub(crate) priority: u8,
    pub(crate) workflow: WorkflowId,
    pub(crate) job: JobIndex,
}

/// A worker that was chosen among those that wait, and waits no more. When this is dropped, it is woken: it has what it was given, or looks for
/// itself.
#[derive(Debug)]
pub(crate) struct Chosen {
    waiter: Arc<Waiter>,
    lessee: Lessee,
}

impl Queues {
    /// Whether a worker waits that takes jobs as they become ready.
    pub(crate) fn have_takers(&self) -> bool {
        self.takers.load(Acquire) > 0
    }

    /// Takes the first worker out of those that wait that may have a job which is about to become ready. None when there is no such worker, when the
    /// queue is paused, or when it has a more urgent job.
    pub(crate) fn choose(&self, job: ForWhom<'_>) -> Option<Chosen> {
        if !self.have_takers() {
            return None;
        }
        let mut each = self.each();
        let queue = each
            .get_mut(job.queue)
            .filter(|queue| queue.is_free_for(job.priority))?;
        let chosen = queue.choose(job)?;
        queue.asked = Some(self.now());
        Some(chosen)
    }
}

impl Queue {
    fn choose(&mut self, job: ForWhom<'_>) -> Option<Chosen> {
        let takes = |waiter: &Waiter| waiter.is_open.load(Acquire) && waiter.takes(job);
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            let Some(lessee) = waiter.lessee.clone().filter(|_| takes(waiter)) else {
                at += 1;
                continue;
            };
            let waiter = self.waiting.remove(at).expect("it was just looked at");
            if !waiter.done.swap(true, AcqRel) {
                waiter.is_chosen.store(true, Release);
                return Some(Chosen { waiter, lessee });
            }
        }
        None
    }
}

impl Waiter {
    fn takes(&self, job: ForWhom<'_>) -> bool {
        self.can_run(job.handler) && !self.except.has(job.workflow, job.job)
    }

    fn handed(&self) -> MutexGuard<'_, Handed> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what it was handed. It gets nothing more: what is on its way goes back.
    pub(super) fn leave(&self) -> Vec<(WorkflowId, Leased)> {
        match mem::replace(&mut *self.handed(), Handed::Left) {
            Handed::Jobs(jobs) => jobs,
            Handed::Left => Vec::new(),
        }
    }
}

impl Chosen {
    /// What it would claim.
    pub(crate) fn lessee(&self) -> &Lessee {
        &self.lessee
    }

    /// Whether it may have another job of the queue for which it was chosen.
    pub(crate) fn takes(&self, job: ForWhom<'_>) -> bool {
        self.waiter.takes(job)
    }

    /// Gives it jobs, which are leased to it now. If it has left, they go back.
    pub(crate) fn give(self, jobs: Vec<(WorkflowId, Leased)>) {
        let mut handed = self.waiter.handed();
        let unwanted = match &mut *handed {
            Handed::Jobs(all) => {
                all.extend(jobs);
                Vec::new()
            }
            Handed::Left => jobs,
        };
        drop(handed);
        // Dropping them posts requests.
        drop(unwanted);
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.waiter.notify.notify_one();
    }
}
