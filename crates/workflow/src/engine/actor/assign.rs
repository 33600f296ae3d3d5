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
use crate::model::{JobIndex, JobState, LeaseRef, Status, Timestamp};
use crate::queue::{JobOffer, ReservedWorker};

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
        let can_assign = self.context.queues.has_waiting_claims()
            && cached.workflow.meta().status == Status::Running
            && self.context.store_health.is_healthy();
        if !can_assign || cached.workflow.newly_ready().is_empty() {
            return Vec::new();
        }
        let graph = Arc::clone(&cached.workflow.graph);
        let mut assignments: Vec<Assignment> = Vec::new();
        let mut rotations: HashMap<(&str, &str), WorkerRotation> = HashMap::new();
        for job in by_priority(&graph, cached.workflow.newly_ready()) {
            if cached.workflow.job(job).state != JobState::Ready || graph.limits(job).is_some() {
                continue;
            }
            let definition = &graph.jobs[job.index()];
            let queue = &*definition.queue;
            let handler = &*definition.handler;
            let offer = JobOffer {
                queue,
                handler,
                priority: definition.priority,
                workflow: cached.workflow.id,
                job,
            };
            let rotation = rotations.entry((queue, handler)).or_default();
            if !rotation.is_exhausted {
                match self.context.queues.reserve_worker(offer) {
                    Some(worker) => {
                        rotation.assignments.push_front(assignments.len());
                        assignments.push(Assignment {
                            worker,
                            leased: Vec::with_capacity(1),
                        });
                    }
                    None => rotation.is_exhausted = true,
                }
            }
            let Some(at) = rotation.assignments.pop_front() else {
                continue;
            };
            let Assignment { worker, leased } = &mut assignments[at];
            if worker.accepts(offer) {
                let claim = worker.claim();
                let lease = LeaseRef {
                    workflow: cached.workflow.id,
                    job,
                    token: new_token(),
                };
                let held = Lease {
                    token: lease.token,
                    worker: claim.worker.clone(),
                    expires: now + claim.lease,
                };
                leased.extend(self.lease(cached, lease, held, now));
            }
            if leased.len() < worker.claim().limit {
                rotation.assignments.push_back(at);
            }
        }
        assignments
    }
}
