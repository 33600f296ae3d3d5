//! Dequeues jobs for a claim, and applies the outcome of the claim.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::ready_jobs::known_jobs::DispatchKey;
use super::scheduler::candidates;
use super::{
    BlockedLimits, ClaimFilter, LaneKey, PassChange, Queue, QueueCache, QueueChange,
    StrideScheduler,
};
use crate::codec::ReadyKey;
use crate::graph::Limits;
use crate::model::{JobIndex, LeaseRef, Timestamp, WorkflowId};

/// Jobs that a worker returned: it wants other ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExcludedJobs(HashSet<(WorkflowId, JobIndex)>);

impl ExcludedJobs {
    pub(crate) fn from_leases(leases: &[LeaseRef]) -> Self {
        Self(
            leases
                .iter()
                .map(|lease| (lease.workflow, lease.job))
                .collect(),
        )
    }

    pub(crate) fn contains(&self, workflow: WorkflowId, job: JobIndex) -> bool {
        !self.0.is_empty() && self.0.contains(&(workflow, job))
    }

    pub(crate) fn allows(&self, ready_key: &ReadyKey) -> bool {
        self.0.is_empty() || !self.0.contains(&(ready_key.workflow(), ready_key.job()))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

/// A ready job that was dequeued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DequeuedJob {
    pub(crate) queue: Arc<str>,
    pub(crate) lane: LaneKey,
    pub(crate) ready_key: ReadyKey,
}

impl DequeuedJob {
    pub(crate) fn workflow(&self) -> WorkflowId {
        self.ready_key.workflow()
    }

    pub(crate) fn job(&self) -> JobIndex {
        self.ready_key.job()
    }
}

/// The jobs that a claim may dequeue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DequeueRequest<'a> {
    pub(crate) queues: &'a [String],
    /// Handlers that the worker can run. `None` if it runs all.
    pub(crate) handlers: Option<&'a [String]>,
    /// Jobs that the worker does not get.
    pub(crate) except: &'a ExcludedJobs,
}

/// Outcome of the claim of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimEnd {
    Leased,
    /// The job was refused or failed: only the store knows whether it is still ready.
    Unknown,
    /// The store failed: only the store knows whether the job is still ready.
    Failed,
}

impl QueueCache {
    /// Dequeues at most `limit` jobs of these queues. The keys of a queue take turns. Under a key
    /// and among queues the most urgent and oldest job goes first.
    pub(crate) fn dequeue(&self, request: DequeueRequest<'_>, limit: usize) -> Vec<DequeuedJob> {
        let mut by_name = self.lock();
        for name in request.queues {
            if let Some(queue) = by_name.get_mut(name.as_str()) {
                queue.last_requested_at = Some(self.now());
            }
        }
        let mut blocked_limits = self.blocked_limits();
        let (dequeued, newly_blocked) =
            select_jobs(&by_name, request, limit, &blocked_limits, self.now());
        for (queue, (key, limit)) in newly_blocked {
            selected_queue(&mut by_name, &queue).ready_jobs.block(
                &key,
                &limit,
                &self.local_partitions,
            );
            blocked_limits.park(&limit, (queue, key));
        }
        drop(blocked_limits);
        for job in &dequeued {
            selected_queue(&mut by_name, &job.queue).start_claim(&job.lane, job.ready_key);
        }
        drop(by_name);
        if !dequeued.is_empty() {
            self.record_claim();
        }
        dequeued
    }

    /// Applies the outcome of a claim.
    pub(crate) fn finish_claim(&self, dequeued: &DequeuedJob, end: ClaimEnd) {
        let mut by_name = self.lock();
        let Some(queue) = by_name.get_mut(&*dequeued.queue) else {
            return;
        };
        queue.changes.record(QueueChange::Job(dequeued.ready_key));
        queue.being_claimed.remove(&dequeued.ready_key);
        let partition = dequeued.workflow().partition();
        if end != ClaimEnd::Leased {
            queue.forget_lane(&dequeued.lane, partition, &self.local_partitions);
        }
        if end == ClaimEnd::Failed {
            queue.mark_incomplete();
            queue.must_refill = true;
            self.refill_needed.notify_one();
        }
    }

    /// Returns a dequeued job that was not claimed: the next waiting worker may have it.
    pub(crate) fn requeue(&self, dequeued: &DequeuedJob) {
        if let Some(queue) = self.lock().get_mut(&*dequeued.queue)
            && queue.being_claimed.remove(&dequeued.ready_key)
        {
            queue.insert(
                &dequeued.lane,
                dequeued.ready_key,
                &self.local_partitions,
                self.now(),
            );
            queue
                .ready_jobs
                .advance_pass(&dequeued.lane.limits, PassChange::Requeued);
            if !queue.paused {
                queue.wake_for(&dequeued.lane, &dequeued.ready_key);
            }
        }
    }

    /// Returns the limits of a dequeued job that has some.
    pub(crate) fn limits_of(&self, dequeued: &DequeuedJob) -> Arc<Limits> {
        let key = &dequeued.lane.limits;
        let known = self
            .lock()
            .get(&*dequeued.queue)
            .and_then(|queue| queue.ready_jobs.group(key)?.limits.clone());
        // The queue may have forgotten the key since then, if no other job of it was left.
        known.unwrap_or_else(|| {
            Limits::parse(key)
                .expect("keys that cannot be read are closed")
                .into()
        })
    }
}

/// A key that is to be blocked, and its limit without capacity.
type NewlyBlocked = (Arc<str>, (Arc<str>, Arc<str>));

/// The scheduler of a requested queue, and the index of the queue's name.
type QueueScheduler<'a> = (StrideScheduler<'a>, usize);

/// A job that may be dequeued: its dispatch key, the index of its queue's name, and its lane.
type Candidate = (DispatchKey, (usize, LaneKey));

/// The queue of a job or key that was just selected.
fn selected_queue<'q>(by_name: &'q mut HashMap<String, Queue>, name: &str) -> &'q mut Queue {
    by_name.get_mut(name).expect("it was just looked at")
}

/// Returns at most `limit` candidates. If no keys take turns in these queues, jobs are preferred that
/// one write can lease.
fn selected_candidates(
    by_name: &HashMap<String, Queue>,
    names: &[String],
    schedulers: &mut [QueueScheduler<'_>],
    limit: usize,
) -> Vec<Candidate> {
    let mut queues = names.iter().filter_map(|name| by_name.get(name.as_str()));
    if queues.any(|queue| queue.ready_jobs.has_turns()) {
        return next_candidates(schedulers, limit, limit);
    }
    let first = next_candidates(schedulers, limit, candidates::candidate_count(limit));
    candidates::prefer_few_partitions(first, limit)
}

/// Selects jobs of these queues to be dequeued, and keys that turned out to be blocked.
fn select_jobs(
    by_name: &HashMap<String, Queue>,
    request: DequeueRequest<'_>,
    limit: usize,
    blocked_limits: &BlockedLimits,
    now: Timestamp,
) -> (Vec<DequeuedJob>, Vec<NewlyBlocked>) {
    let mut schedulers = schedulers_for(by_name, request, blocked_limits, now);
    let names = request.queues;
    let chosen = selected_candidates(by_name, names, &mut schedulers, limit);
    let names: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
    let dequeued = chosen
        .into_iter()
        .map(|(dispatch_key, (at, lane))| DequeuedJob {
            queue: Arc::clone(&names[at]),
            lane,
            ready_key: dispatch_key.2,
        });
    let mut newly_blocked = Vec::new();
    for (scheduler, at) in schedulers {
        for blocked in scheduler.newly_blocked {
            newly_blocked.push((Arc::clone(&names[at]), blocked));
        }
    }
    (dequeued.collect(), newly_blocked)
}

/// Returns the schedulers of the requested queues that are not paused, each queue once.
fn schedulers_for<'a>(
    by_name: &'a HashMap<String, Queue>,
    request: DequeueRequest<'a>,
    blocked_limits: &'a BlockedLimits,
    now: Timestamp,
) -> Vec<QueueScheduler<'a>> {
    let filter = ClaimFilter {
        except: request.except,
        handlers: request.handlers,
        now,
    };
    let names = request.queues;
    let scheduler = |(at, name): (usize, &String)| {
        let queue = by_name
            .get(name.as_str())
            .filter(|queue| !queue.paused && !names[..at].contains(name))?;
        Some((
            StrideScheduler::new(&queue.ready_jobs, filter, blocked_limits),
            at,
        ))
    };
    names.iter().enumerate().filter_map(scheduler).collect()
}

/// Returns the first jobs of all schedulers: `limit`, or up to `max_candidates` as a choice. There
/// are more than `limit` only while they are as urgent as the last and not all of one partition.
fn next_candidates(
    schedulers: &mut [QueueScheduler<'_>],
    limit: usize,
    max_candidates: usize,
) -> Vec<Candidate> {
    let mut first: Vec<Candidate> = Vec::new();
    while first.len() < max_candidates {
        if first.len() == limit && candidates::are_of_one_partition(&first) {
            break;
        }
        let next_keys = schedulers
            .iter_mut()
            .enumerate()
            .filter_map(|(at, (scheduler, _))| Some((scheduler.peek()?, at)));
        let Some((dispatch_key, scheduler)) = next_keys.min() else {
            break;
        };
        if first.len() >= limit
            && first
                .last()
                .is_some_and(|(last, _)| last.0 != dispatch_key.0)
        {
            break;
        }
        let (scheduler, at) = &mut schedulers[scheduler];
        first.extend(
            scheduler
                .pop()
                .map(|(dispatch_key, lane)| (dispatch_key, (*at, lane))),
        );
    }
    first
}
