//! Assigns jobs that become ready to waiting workers, in the write that makes them ready. This
//! saves the second write of a claim.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::answer::Leased;
use super::apply::{Player, new_token};
use super::cached_workflow::CachedWorkflow;
use crate::codec::lease::LeaseRef;
use crate::engine::queues::waiting_claim::{JobOffer, ReservedWorker};
use crate::graph::Graph;
use crate::id::JobIndex;
use crate::state::{JobState, Status};
use crate::time::Timestamp;
use crate::transition::event::{Event, Lease};
use crate::transition::transition;

/// Jobs of one workflow for one waiting worker, which gets them when they are written.
pub(super) struct Assignment {
    pub(super) chosen: ReservedWorker,
    pub(super) leased: Vec<Leased>,
}

/// Workers that were chosen for jobs of one handler in one queue, and that can take more.
#[derive(Default)]
struct WorkerRotation {
    /// Indices of their assignments. The first worker has the fewest jobs.
    chosen: VecDeque<usize>,
    /// Whether no other worker waits.
    is_complete: bool,
}

/// Sorts jobs by priority, the most urgent first. Jobs of one priority keep their order.
pub(super) fn by_priority(graph: &Graph, jobs: &[JobIndex]) -> Vec<JobIndex> {
    let mut sorted = jobs.to_vec();
    sorted.sort_by_key(|job| Reverse(graph.jobs[job.index()].priority));
    sorted
}

impl Player<'_> {
    /// Leases jobs that became ready since the last write to workers that wait at this server. Each
    /// worker gets one job before any gets another.
    ///
    /// Limited jobs go through the queue, since their permits and units must be acquired before.
    /// While a partition of the store fails, all jobs do: a worker must not wait for a slow write
    /// while other servers may have work for it.
    pub(super) fn assign_to_waiting(
        &self,
        entry: &mut CachedWorkflow,
        now: Timestamp,
    ) -> Vec<Assignment> {
        let may = self.context.queues.has_waiting_claims()
            && entry.workflow.meta().status == Status::Running
            && self.context.troubles.is_none();
        if !may || entry.workflow.newly_ready().is_empty() {
            return Vec::new();
        }
        let graph = Arc::clone(&entry.workflow.graph);
        let mut handed: Vec<Assignment> = Vec::new();
        let mut lines: HashMap<(&str, &str), WorkerRotation> = HashMap::new();
        for job in by_priority(&graph, entry.workflow.newly_ready()) {
            if entry.workflow.job(job).state != JobState::Ready || graph.limits(job).is_some() {
                continue;
            }
            let about = &graph.jobs[job.index()];
            let queue = &*about.queue;
            let handler = &*about.handler;
            let for_whom = JobOffer {
                queue,
                handler,
                priority: about.priority,
                workflow: entry.workflow.id,
                job,
            };
            let line = lines.entry((queue, handler)).or_default();
            if !line.is_complete {
                match self.context.queues.choose(for_whom) {
                    Some(chosen) => {
                        line.chosen.push_front(handed.len());
                        handed.push(Assignment {
                            chosen,
                            leased: Vec::with_capacity(1),
                        });
                    }
                    None => line.is_complete = true,
                }
            }
            let Some(at) = line.chosen.pop_front() else {
                continue;
            };
            let Assignment { chosen, leased } = &mut handed[at];
            if chosen.takes(for_whom) {
                leased.extend(self.lease_to(entry, job, chosen, now));
            }
            if leased.len() < chosen.lessee().limit {
                line.chosen.push_back(at);
            }
        }
        handed
    }

    fn lease_to(
        &self,
        entry: &mut CachedWorkflow,
        job: JobIndex,
        chosen: &ReservedWorker,
        now: Timestamp,
    ) -> Option<Leased> {
        let lessee = chosen.lessee();
        let expires = now + lessee.lease;
        let lease = LeaseRef {
            workflow: entry.workflow.id,
            job,
            token: new_token(),
        };
        let event = Event::Claim {
            job,
            lease: Lease {
                token: lease.token,
                worker: lessee.worker.clone(),
                expires,
            },
        };
        transition(&mut entry.workflow, &event, self.context.retention, now).ok()?;
        Some(self.leased(entry, lease, expires, now))
    }
}
