//! Dequeues jobs for a claim, and applies the outcome of the claim.

use std::sync::Arc;

use hashbrown::HashMap;

use super::blocked_limits::BlockedLimits;
use super::excluded_jobs::ExcludedJobs;
use super::known_jobs::DispatchKey;
use super::lane::MoreRows;
use super::queue::Queue;
use super::ready_jobs::{LaneKey, Served};
use super::scheduler::{ClaimFilter, StrideScheduler};
use super::{QueueCache, candidates};
use crate::codec::rows::ReadyKey;
use crate::engine::post::thread_map::CallerThread;
use crate::graph::limits::Limits;
use crate::id::{JobIndex, WorkflowId};
use crate::time::Timestamp;

/// A ready job that was dequeued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DequeuedJob {
    pub(crate) queue: Arc<str>,
    pub(crate) lane: LaneKey,
    pub(crate) head: ReadyKey,
}

impl DequeuedJob {
    pub(crate) fn workflow(&self) -> WorkflowId {
        self.head.workflow()
    }

    pub(crate) fn job(&self) -> JobIndex {
        self.head.job()
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
    pub(crate) near: CallerThread<'a>,
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
    /// and among queues the most urgent job goes first, among equally urgent jobs those of the
    /// caller's thread.
    pub(crate) fn dequeue(&self, wanting: DequeueRequest<'_>, limit: usize) -> Vec<DequeuedJob> {
        let mut each = self.lock();
        for name in wanting.queues {
            if let Some(queue) = each.get_mut(name.as_str()) {
                queue.asked = Some(self.now());
            }
        }
        let mut closings = self.closings();
        let (taken, shut) = first_of(&each, wanting, limit, &closings, self.now());
        for (queue, (key, limit)) in shut {
            each.get_mut(&*queue)
                .expect("it was just looked at")
                .lanes
                .close(&key, &limit, &self.mine);
            closings.park(&limit, (queue, key));
        }
        drop(closings);
        for DequeuedJob { queue, lane, head } in &taken {
            each.get_mut(&**queue)
                .expect("it was just looked at")
                .take(lane, *head);
        }
        drop(each);
        if !taken.is_empty() {
            self.note_work();
        }
        taken
    }

    /// Applies the outcome of a claim.
    pub(crate) fn finish_claim(&self, taken: &DequeuedJob, end: ClaimEnd) {
        let mut each = self.lock();
        let Some(queue) = each.get_mut(&*taken.queue) else {
            return;
        };
        queue.changes.note(taken.head);
        queue.claimed.remove(&taken.head);
        if !self.mine.contains(taken.workflow().partition()) {
            queue.claims.note(end, self.now());
            if end == ClaimEnd::Unknown {
                // The other jobs of the same read are probably gone, too.
                queue.lanes.change(&taken.lane, |lane| {
                    lane.heads.remote.clear();
                    lane.more = MoreRows {
                        remote: true,
                        ..lane.more
                    };
                });
            }
        }
        let at = taken.workflow().partition();
        match end {
            ClaimEnd::Leased => {}
            ClaimEnd::Unknown => queue.mark_stale(&taken.lane, at, &self.mine),
            ClaimEnd::Failed => {
                queue.mark_stale(&taken.lane, at, &self.mine);
                queue.failed = true;
                self.refill_needed.notify_one();
            }
        }
    }

    /// Returns a dequeued job that was not claimed: the next waiting worker may have it.
    pub(crate) fn requeue(&self, taken: &DequeuedJob) {
        if let Some(queue) = self.lock().get_mut(&*taken.queue)
            && queue.claimed.remove(&taken.head)
        {
            queue.insert(&taken.lane, taken.head, &self.mine, self.now());
            queue.lanes.serve(&taken.lane.limits, Served::Not);
            if !queue.paused {
                queue.wake_for(&taken.lane, &taken.head);
            }
        }
    }

    /// Returns the limits of a dequeued job that has some.
    pub(crate) fn limits_of(&self, taken: &DequeuedJob) -> Arc<Limits> {
        let key = &taken.lane.limits;
        let known = self
            .lock()
            .get(&*taken.queue)
            .and_then(|queue| queue.lanes.group(key)?.limits.clone());
        // The queue may have forgotten the key since then, if no other job of it was left.
        known.unwrap_or_else(|| {
            Limits::read(key)
                .expect("keys that cannot be read are closed")
                .into()
        })
    }
}

/// A key that is to be blocked, and its limit without capacity.
type Shut = (Arc<str>, (Arc<str>, Arc<str>));

/// The scheduler of a requested queue, and the index of the queue's name.
type QueueLine<'a> = (StrideScheduler<'a>, usize);

/// A job that may be dequeued: its dispatch key, the index of its queue's name, and its lane.
type InLine = (DispatchKey, (usize, LaneKey));

/// Selects jobs of these queues to be dequeued, and keys that turned out to be blocked.
fn first_of(
    each: &HashMap<String, Queue>,
    wanting: DequeueRequest<'_>,
    limit: usize,
    closings: &BlockedLimits,
    now: Timestamp,
) -> (Vec<DequeuedJob>, Vec<Shut>) {
    let mut lines = lines(each, wanting, closings, now);
    let names = wanting.queues;
    // Without limits, jobs are preferred that one write can lease.
    let plain = names
        .iter()
        .filter_map(|name| each.get(name.as_str()))
        .all(|queue| !queue.lanes.has_limits());
    let chosen = if plain {
        let first = first_of_lines(&mut lines, limit, candidates::candidates(limit));
        candidates::prefer_few_partitions(first, limit)
    } else {
        first_of_lines(&mut lines, limit, limit)
    };
    let names: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
    let taken = chosen.into_iter().map(|(turn, (at, lane))| DequeuedJob {
        queue: Arc::clone(&names[at]),
        lane,
        head: turn.2,
    });
    let shut = lines
        .into_iter()
        .flat_map(|(line, at)| line.newly_blocked.into_iter().map(move |shut| (at, shut)))
        .map(|(at, shut)| (Arc::clone(&names[at]), shut));
    (taken.collect(), shut.collect())
}

/// Returns the schedulers of the requested queues that are not paused, each queue once.
fn lines<'a>(
    each: &'a HashMap<String, Queue>,
    wanting: DequeueRequest<'a>,
    closings: &'a BlockedLimits,
    now: Timestamp,
) -> Vec<QueueLine<'a>> {
    let claimant = ClaimFilter {
        except: wanting.except,
        handlers: wanting.handlers,
        near: wanting.near,
        now,
    };
    let names = wanting.queues;
    let line = |(at, name): (usize, &String)| {
        let queue = each
            .get(name.as_str())
            .filter(|queue| !queue.paused && !names[..at].contains(name))?;
        Some((StrideScheduler::new(&queue.lanes, claimant, closings), at))
    };
    names.iter().enumerate().filter_map(line).collect()
}

/// Returns the first jobs of all schedulers: `limit`, or up to `max_candidates` as a choice. There
/// are more than `limit` only while they are as urgent as the last and not all of one partition.
fn first_of_lines(lines: &mut [QueueLine<'_>], limit: usize, most: usize) -> Vec<InLine> {
    let mut first: Vec<InLine> = Vec::new();
    while first.len() < most {
        if first.len() == limit && candidates::are_of_one_partition(&first) {
            break;
        }
        let turns = lines
            .iter_mut()
            .enumerate()
            .filter_map(|(at, (line, _))| Some((line.peek()?, at)));
        let Some((turn, line)) = turns.min() else {
            break;
        };
        if first.len() >= limit && first.last().is_some_and(|(last, _)| last.0 != turn.0) {
            break;
        }
        let (line, at) = &mut lines[line];
        first.extend(line.take().map(|(turn, lane)| (turn, (*at, lane))));
    }
    first
}
