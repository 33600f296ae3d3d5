//! Assigns jobs that become ready to waiting workers, in the write that makes them ready. This
//! saves the second write of a claim.

pub(crate) mod undelivered_lease;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::answer::LeasedJob;
use super::apply::{Applier, new_token};
use super::cache::cached_workflow::CachedWorkflow;
use crate::graph::Graph;
use crate::machine::Lease;
use crate::model::{JobIndex, JobState, Status, Timestamp, WorkflowId};
use crate::queue::{JobOffer, QueueCache, ReservedWorker};

/// Jobs of one workflow for one waiting worker, which gets them when they are written.
pub(super) struct Assignment {
    pub(super) worker: ReservedWorker,
    pub(super) leased: Vec<LeasedJob>,
}

/// Workers that were chosen for jobs of one handler in one queue, and that can take more.
#[derive(Default)]
struct WorkerRotation {
    /// Indices of their assignments. The first worker has the fewest jobs.
    assignments: VecDeque<usize>,
    /// Whether no other worker waits.
    is_exhausted: bool,
}

impl WorkerRotation {
    /// Returns the index of the assignment of the next worker: one that has no job yet, or else the
    /// one with the fewest. `None` if no worker takes more.
    fn next_worker(
        &mut self,
        queues: &QueueCache,
        offer: JobOffer<'_>,
        assignments: &mut Vec<Assignment>,
    ) -> Option<usize> {
        if !self.is_exhausted
            && let Some(worker) = queues.reserve_worker(offer)
        {
            let leased = Vec::with_capacity(1);
            assignments.push(Assignment { worker, leased });
            return Some(assignments.len() - 1);
        }
        self.is_exhausted = true;
        self.assignments.pop_front()
    }
}

/// Sorts jobs by priority, the most urgent first. Jobs of one priority keep their order.
pub(super) fn by_priority(graph: &Graph, jobs: &[JobIndex]) -> Vec<JobIndex> {
    let mut sorted = jobs.to_vec();
    sorted.sort_by_key(|job| Reverse(graph.jobs[job.index()].priority));
    sorted
}

impl Applier<'_> {
    /// Leases jobs that became ready since the last write to workers that wait at this server. Each
    /// worker gets one job before any gets another.
    ///
    /// Limited jobs go through the queue, since their permits and units must be acquired before.
    /// While a partition of the store fails, all jobs do: a worker must not wait for a slow write
    /// while other servers may have work for it.
    pub(super) fn assign_to_waiting(
        &self,
        cached: &mut CachedWorkflow,
        now: Timestamp,
    ) -> Vec<Assignment> {
        if !self.can_assign(cached) {
            return Vec::new();
        }
        let graph = Arc::clone(&cached.workflow.graph);
        let mut assignments = Vec::new();
        let mut rotations: HashMap<_, WorkerRotation> = HashMap::new();
        for job in by_priority(&graph, cached.workflow.newly_ready()) {
            if cached.workflow.job(job).state != JobState::Ready || graph.limits(job).is_some() {
                continue;
            }
            let offer = job_offer(&graph, cached.workflow.id, job);
            let rotation = rotations.entry((offer.queue, offer.handler)).or_default();
            let next = rotation.next_worker(&self.context.queues, offer, &mut assignments);
            if let Some(at) = next
                && self.lease_to_waiting(cached, &mut assignments[at], offer, now)
            {
                rotation.assignments.push_back(at);
            }
        }
        assignments
    }

    /// Leases a job to a waiting worker that accepts it. Returns whether the worker can take more.
    fn lease_to_waiting(
        &self,
        cached: &mut CachedWorkflow,
        Assignment { worker, leased }: &mut Assignment,
        offer: JobOffer<'_>,
        now: Timestamp,
    ) -> bool {
        let claim = worker.claim();
        if worker.accepts(offer) {
            let held = Lease {
                token: new_token(),
                worker: claim.worker.clone(),
                expires: now + claim.lease,
            };
            leased.extend(self.lease(cached, offer.job, held, now));
        }
        leased.len() < claim.limit
    }

    /// Whether a workflow has new ready jobs that may be leased to waiting workers.
    fn can_assign(&self, cached: &CachedWorkflow) -> bool {
        !cached.workflow.newly_ready().is_empty()
            && self.context.queues.has_waiting_claims()
            && cached.workflow.meta().status == Status::Running
            && self.context.store_health.is_healthy()
    }
}

fn job_offer(graph: &Graph, workflow: WorkflowId, job: JobIndex) -> JobOffer<'_> {
    let definition = &graph.jobs[job.index()];
    JobOffer {
        queue: &definition.queue,
        handler: &definition.handler,
        priority: definition.priority,
        workflow,
        job,
    }
}
