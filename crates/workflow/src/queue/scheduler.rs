//! The jobs of one queue in the order in which a claim dequeues them: keys of limits in turn, and
//! under each key the most urgent and oldest job first.

pub(crate) mod candidates;
pub(crate) mod weights;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::sync::Arc;

use super::ready_jobs::known_jobs::DispatchKey;
use super::ready_jobs::lane::Lane;
use super::{BlockedLimits, ExcludedJobs, LaneKey, LimitGroup, ReadyJobs};
use crate::model::Timestamp;

/// Filter for the jobs that a claim may get.
#[derive(Clone, Copy)]
pub(super) struct ClaimFilter<'a> {
    pub(super) except: &'a ExcludedJobs,
    /// Handlers that the worker can run. `None` if it runs all.
    pub(super) handlers: Option<&'a [String]>,
    pub(super) now: Timestamp,
}

impl<'a> ClaimFilter<'a> {
    fn can_run(&self, handler: &str) -> bool {
        self.handlers
            .is_none_or(|handlers| handlers.iter().any(|known| known == handler))
    }

    /// The jobs of a group that the claim may get, in dispatch order. `None` if no lane has any.
    fn jobs_of_group(self, group: &'a LimitGroup) -> Option<JobIterator<'a>> {
        let mut lanes = group
            .lanes
            .iter()
            .filter(|(handler, lane)| !lane.known_jobs.is_empty() && self.can_run(handler))
            .map(|(handler, lane)| self.jobs_of_lane(handler, lane));
        let first = lanes.next()?;
        let jobs: Box<dyn Iterator<Item = (DispatchKey, &'a Arc<str>)> + 'a> = match lanes.next() {
            None => Box::new(first),
            Some(second) => Box::new(merge_all(
                [first, second].into_iter().chain(lanes).collect(),
            )),
        };
        Some(jobs.peekable())
    }

    /// The jobs of a lane that the claim may get, in dispatch order.
    fn jobs_of_lane(
        self,
        handler: &'a Arc<str>,
        lane: &'a Lane,
    ) -> impl Iterator<Item = (DispatchKey, &'a Arc<str>)> + use<'a> {
        lane.known_jobs
            .in_dispatch_order(self.now)
            .filter(move |dispatch_key| self.except.allows(&dispatch_key.2))
            .map(move |dispatch_key| (dispatch_key, handler))
    }
}

type JobIterator<'a> = Peekable<Box<dyn Iterator<Item = (DispatchKey, &'a Arc<str>)> + 'a>>;

/// A key and its remaining jobs.
struct KeyCursor<'a> {
    group: &'a LimitGroup,
    jobs: JobIterator<'a>,
}

/// Yields the jobs of one queue in dispatch order.
pub(super) struct StrideScheduler<'a> {
    filter: ClaimFilter<'a>,
    blocked_limits: &'a BlockedLimits,
    /// Groups that have no cursor yet.
    unvisited: Peekable<Box<dyn Iterator<Item = &'a LimitGroup> + 'a>>,
    /// The group without limits, while it has no cursor. It has a pass, too.
    unlimited: Option<&'a LimitGroup>,
    cursors: Vec<KeyCursor<'a>>,
    /// Passes and indices of `cursors`.
    by_pass: BinaryHeap<Reverse<(u64, usize)>>,
    /// Keys under a blocked limit, each with that limit.
    pub(super) newly_blocked: Vec<(Arc<str>, Arc<str>)>,
}

impl<'a> StrideScheduler<'a> {
    pub(super) fn new(
        ready_jobs: &'a ReadyJobs,
        filter: ClaimFilter<'a>,
        blocked_limits: &'a BlockedLimits,
    ) -> Self {
        let any_runnable = filter.handlers.is_none_or(|handlers| {
            handlers
                .iter()
                .any(|handler| ready_jobs.runnable_for(handler) > 0)
        });
        let unvisited: Box<dyn Iterator<Item = &'a LimitGroup> + 'a> = if any_runnable {
            Box::new(ready_jobs.groups_in_order())
        } else {
            Box::new(std::iter::empty())
        };
        let unlimited =
            (any_runnable && ready_jobs.unlimited.known() > 0).then_some(&ready_jobs.unlimited);
        let cursors = Vec::new();
        let by_pass = BinaryHeap::new();
        Self {
            filter,
            blocked_limits,
            unvisited: unvisited.peekable(),
            unlimited,
            cursors,
            by_pass,
            newly_blocked: Vec::new(),
        }
    }

    /// Returns the dispatch key of the next job.
    pub(super) fn peek(&mut self) -> Option<DispatchKey> {
        loop {
            let first = self.by_pass.peek().map(|Reverse((pass, _))| *pass);
            let next = [self.unlimited, self.unvisited.peek().copied()]
                .into_iter()
                .flatten()
                .map(LimitGroup::pass)
                .min();
            match (first, next) {
                (None, None) => return None,
                (Some(first), next) if next.is_none_or(|next| first <= next) => {
                    let Reverse((_, at)) = self.by_pass.peek().expect("it was just looked at");
                    match self.cursors[*at].jobs.peek() {
                        Some((dispatch_key, _)) => return Some(*dispatch_key),
                        None => _ = self.by_pass.pop(),
                    }
                }
                _ => self.open_cursor(),
            }
        }
    }

    /// Dequeues the job whose key [`StrideScheduler::peek`] has just returned.
    pub(super) fn pop(&mut self) -> Option<(DispatchKey, LaneKey)> {
        let mut next = self.by_pass.peek_mut()?;
        let Reverse((pass, at)) = &mut *next;
        let KeyCursor { group, jobs } = &mut self.cursors[*at];
        let (dispatch_key, handler) = jobs.next()?;
        *pass += group.stride();
        Some((
            dispatch_key,
            LaneKey {
                limits: Arc::clone(&group.key),
                handler: Arc::clone(handler),
            },
        ))
    }

    /// Opens a cursor on the group that is next by its pass, unless one of its limits is blocked.
    fn open_cursor(&mut self) {
        let Some(group) = self.next_group() else {
            return;
        };
        if let Some(limit) = self.blocked_limits.first_blocked(&group.limit_names) {
            self.newly_blocked.push((Arc::clone(&group.key), limit));
            return;
        }
        if let Some(jobs) = self.filter.jobs_of_group(group) {
            self.by_pass
                .push(Reverse((group.pass(), self.cursors.len())));
            self.cursors.push(KeyCursor { group, jobs });
        }
    }

    /// Takes the group that is next by its pass of those without a cursor.
    fn next_group(&mut self) -> Option<&'a LimitGroup> {
        let next = self.unvisited.peek();
        match self.unlimited {
            Some(unlimited) if next.is_none_or(|next| unlimited.pass() <= next.pass()) => {
                self.unlimited.take()
            }
            _ => self.unvisited.next(),
        }
    }
}

/// Merges sorted sequences.
fn merge_all<'a, T: Iterator<Item = (DispatchKey, &'a Arc<str>)>>(
    sequences: Vec<T>,
) -> impl Iterator<Item = (DispatchKey, &'a Arc<str>)> {
    let mut sequences: Vec<Peekable<T>> = sequences.into_iter().map(Iterator::peekable).collect();
    let first = sequences
        .iter_mut()
        .enumerate()
        .filter_map(|(at, one)| Some(Reverse((one.peek()?.0, at))));
    let mut next_keys: BinaryHeap<Reverse<(DispatchKey, usize)>> = first.collect();
    std::iter::from_fn(move || {
        let Reverse((_, at)) = next_keys.pop()?;
        let next = sequences[at].next();
        next_keys.extend(
            sequences[at]
                .peek()
                .map(|(dispatch_key, _)| Reverse((*dispatch_key, at))),
        );
        next
    })
}
