//! The jobs of one queue in the order in which a claim dequeues them: keys of limits in turn, and
//! under each key the most urgent and oldest job first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::sync::Arc;

use super::blocked_limits::BlockedLimits;
use super::excluded_jobs::ExcludedJobs;
use super::known_jobs::DispatchKey;
use super::ready_jobs::{Group, LaneKey, Lanes};
use crate::engine::post::thread_map::CallerThread;
use crate::time::Timestamp;

/// Filter for the jobs that a claim may get.
#[derive(Clone, Copy)]
pub(super) struct ClaimFilter<'a> {
    pub(super) except: &'a ExcludedJobs,
    /// Handlers that the worker can run. `None` if it runs all.
    pub(super) handlers: Option<&'a [String]>,
    pub(super) near: CallerThread<'a>,
    pub(super) now: Timestamp,
}

impl ClaimFilter<'_> {
    fn can_run(&self, handler: &str) -> bool {
        self.handlers
            .is_none_or(|handlers| handlers.iter().any(|known| known == handler))
    }
}

type Heads<'a> = Peekable<Box<dyn Iterator<Item = (DispatchKey, &'a Arc<str>)> + 'a>>;

/// A key and its remaining jobs.
struct KeyCursor<'a> {
    group: &'a Group,
    heads: Heads<'a>,
}

/// Yields the jobs of one queue in dispatch order.
pub(super) struct StrideScheduler<'a> {
    claimant: ClaimFilter<'a>,
    closings: &'a BlockedLimits,
    /// Groups that have no cursor yet.
    rest: Peekable<Box<dyn Iterator<Item = &'a Group> + 'a>>,
    /// The group without limits, while it has no cursor. It has a pass, too.
    free: Option<&'a Group>,
    parts: Vec<KeyCursor<'a>>,
    /// Passes and indices of `cursors`.
    by_pass: BinaryHeap<Reverse<(u64, usize)>>,
    /// Keys under a blocked limit, each with that limit.
    pub(super) newly_blocked: Vec<(Arc<str>, Arc<str>)>,
}

impl<'a> StrideScheduler<'a> {
    pub(super) fn new(
        lanes: &'a Lanes,
        claimant: ClaimFilter<'a>,
        closings: &'a BlockedLimits,
    ) -> Self {
        let any = claimant
            .handlers
            .is_none_or(|handlers| handlers.iter().any(|handler| lanes.open_of(handler) > 0));
        let rest: Box<dyn Iterator<Item = &'a Group> + 'a> = if any {
            Box::new(lanes.in_order())
        } else {
            Box::new(std::iter::empty())
        };
        let free = (any && lanes.free.known() > 0).then_some(&lanes.free);
        let parts = Vec::new();
        let by_pass = BinaryHeap::new();
        Self {
            claimant,
            closings,
            rest: rest.peekable(),
            free,
            parts,
            by_pass,
            newly_blocked: Vec::new(),
        }
    }

    /// Returns the dispatch key of the next job.
    pub(super) fn peek(&mut self) -> Option<DispatchKey> {
        loop {
            let first = self.by_pass.peek().map(|Reverse((pass, _))| *pass);
            let next = [self.free, self.rest.peek().copied()]
                .into_iter()
                .flatten()
                .map(Group::pass)
                .min();
            match (first, next) {
                (None, None) => return None,
                (Some(first), next) if next.is_none_or(|next| first <= next) => {
                    let Reverse((_, at)) = self.by_pass.peek().expect("it was just looked at");
                    match self.parts[*at].heads.peek() {
                        Some((turn, _)) => return Some(*turn),
                        None => _ = self.by_pass.pop(),
                    }
                }
                _ => self.open_one(),
            }
        }
    }

    /// Dequeues the job whose key [`StrideScheduler::peek`] has just returned.
    pub(super) fn take(&mut self) -> Option<(DispatchKey, LaneKey)> {
        let mut next = self.by_pass.peek_mut()?;
        let Reverse((pass, at)) = &mut *next;
        let KeyCursor { group, heads } = &mut self.parts[*at];
        let (turn, handler) = heads.next()?;
        *pass += group.stride();
        Some((
            turn,
            LaneKey {
                limits: Arc::clone(&group.key),
                handler: Arc::clone(handler),
            },
        ))
    }

    /// Opens a cursor on the group that is next by its pass, unless one of its limits is blocked.
    fn open_one(&mut self) {
        let free = self.free.filter(|free| {
            self.rest
                .peek()
                .is_none_or(|next| free.pass() <= next.pass())
        });
        let group = match free {
            Some(_) => self.free.take(),
            None => self.rest.next(),
        };
        let Some(group) = group else { return };
        if let Some(limit) = self.closings.closes(&group.names) {
            self.newly_blocked.push((Arc::clone(&group.key), limit));
            return;
        }
        let ClaimFilter {
            near, now, except, ..
        } = self.claimant;
        let claimant = self.claimant;
        let mut lanes = group
            .lanes
            .iter()
            .filter(move |(handler, lane)| !lane.heads.is_empty() && claimant.can_run(handler));
        let of = move |(handler, lane): (&'a Arc<str>, &'a super::lane::Lane)| {
            let allowed = move |turn: &DispatchKey| except.allows(&turn.2);
            lane.heads
                .in_dispatch_order(now, near)
                .filter(allowed)
                .map(move |turn| (turn, handler))
        };
        let Some(first) = lanes.next().map(of) else {
            return;
        };
        let heads: Box<dyn Iterator<Item = (DispatchKey, &'a Arc<str>)> + 'a> =
            match lanes.next().map(of) {
                None => Box::new(first),
                Some(second) => Box::new(merged(
                    vec![first, second]
                        .into_iter()
                        .chain(lanes.map(of))
                        .collect(),
                )),
            };
        self.by_pass.push(Reverse((group.pass(), self.parts.len())));
        self.parts.push(KeyCursor {
            group,
            heads: heads.peekable(),
        });
    }
}

/// Merges sorted sequences.
fn merged<'a, T: Iterator<Item = (DispatchKey, &'a Arc<str>)>>(
    many: Vec<T>,
) -> impl Iterator<Item = (DispatchKey, &'a Arc<str>)> {
    let mut many: Vec<Peekable<T>> = many.into_iter().map(Iterator::peekable).collect();
    let first = many
        .iter_mut()
        .enumerate()
        .filter_map(|(at, one)| Some(Reverse((one.peek()?.0, at))));
    let mut turns: BinaryHeap<Reverse<(DispatchKey, usize)>> = first.collect();
    std::iter::from_fn(move || {
        let Reverse((_, at)) = turns.pop()?;
        let next = many[at].next();
        turns.extend(many[at].peek().map(|(turn, _)| Reverse((*turn, at))));
        next
    })
}
