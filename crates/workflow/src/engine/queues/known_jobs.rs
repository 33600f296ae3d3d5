//! The known ready jobs of a lane: local ones, and remote ones, which their assigned servers claim
//! first.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::codec::rows::ReadyKey;
use crate::engine::membership::partitions::LocalPartitions;
use crate::engine::post::thread_map::CallerThread;
use crate::id::Partition;
use crate::time::Timestamp;

/// Time for which a remote job is left to its assigned server: it counts as this much younger. It
/// bounds the wait for a server without workers.
const LEFT_TO_HOME: Duration = Duration::from_secs(2);
/// Time for which a job is left to workers on the thread that serves it. Short enough to be
/// unnoticed.
const LEFT_TO_THREAD: Duration = Duration::from_millis(20);
/// Maximum number of jobs that are searched for those of the caller's thread.
const NEAR_SCAN: usize = 512;
/// Time for which a remote job that was read counts as still ready.
const REMOTE_ROW_TTL: Duration = Duration::from_millis(50);

/// Order of a job among all that a server may claim: inverted priority, then time since which it is
/// ready.
pub(super) type DispatchKey = (u8, Timestamp, ReadyKey);

/// The known ready jobs of a lane.
#[derive(Debug, Default)]
pub(super) struct KnownJobs {
    pub(super) local: BTreeSet<ReadyKey>,
    pub(super) remote: BTreeSet<ReadyKey>,
    /// Time of the latest read of `remote`.
    read: Timestamp,
}

fn turn_here(head: ReadyKey) -> DispatchKey {
    (u8::MAX - head.priority(), head.since(), head)
}

/// Dispatch key of a local job that another thread serves.
fn turn_far(head: ReadyKey) -> DispatchKey {
    (
        u8::MAX - head.priority(),
        head.since() + LEFT_TO_THREAD,
        head,
    )
}

fn turn_away(head: ReadyKey) -> DispatchKey {
    (u8::MAX - head.priority(), head.since() + LEFT_TO_HOME, head)
}

impl KnownJobs {
    fn of(&mut self, partition: Partition, mine: &LocalPartitions) -> &mut BTreeSet<ReadyKey> {
        if mine.contains(partition) {
            &mut self.local
        } else {
            &mut self.remote
        }
    }

    pub(super) fn insert(&mut self, head: ReadyKey, mine: &LocalPartitions, now: Timestamp) {
        let here = self.of(head.workflow().partition(), mine);
        here.insert(head);
        if !mine.contains(head.workflow().partition()) {
            self.read = now;
        }
    }

    pub(super) fn remove(&mut self, head: &ReadyKey) -> bool {
        self.local.remove(head) || self.remote.remove(head)
    }

    pub(super) fn contains(&self, head: &ReadyKey) -> bool {
        self.local.contains(head) || self.remote.contains(head)
    }

    pub(super) fn len(&self) -> usize {
        self.local.len() + self.remote.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.local.is_empty() && self.remote.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ReadyKey> {
        self.local.iter().chain(&self.remote)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&ReadyKey) -> bool) {
        self.local.retain(&keep);
        self.remote.retain(&keep);
    }

    /// Forgets the last job, a remote one if there is any.
    pub(super) fn pop_last(&mut self) -> Option<ReadyKey> {
        self.remote.pop_last().or_else(|| self.local.pop_last())
    }

    /// Returns the most urgent job.
    pub(super) fn first(&self) -> Option<&ReadyKey> {
        self.local
            .first()
            .into_iter()
            .chain(self.remote.first())
            .min()
    }

    /// Sorts the jobs again into local and remote ones after partitions were reassigned.
    pub(super) fn sort_out(&mut self, mine: &LocalPartitions) {
        for head in std::mem::take(&mut self.local)
            .into_iter()
            .chain(std::mem::take(&mut self.remote))
        {
            self.of(head.workflow().partition(), mine).insert(head);
        }
    }

    /// Records a read: remote jobs that were gone have been removed.
    pub(super) fn note_read(&mut self, now: Timestamp) {
        self.read = now;
    }

    /// Whether remote jobs may have been claimed since they were read.
    pub(super) fn are_stale(&self, now: Timestamp) -> bool {
        !self.remote.is_empty() && now.since(self.read) > REMOTE_ROW_TTL
    }

    /// Known jobs in dispatch order; jobs of other threads count as 20 ms younger, remote jobs as 2
    /// s younger. Remote jobs that were read more than 50 ms ago are left out, unless they precede
    /// the first local job.
    pub(super) fn in_dispatch_order<'a>(
        &'a self,
        now: Timestamp,
        near: CallerThread<'a>,
    ) -> impl Iterator<Item = DispatchKey> + 'a {
        let first_here = self.local.first().map(|head| turn_here(*head));
        let stale = self.are_stale(now);
        let believed =
            move |turn: &DispatchKey| !stale || first_here.is_some_and(|here| *turn < here);
        let is_near = move |head: &ReadyKey| near.has(head.workflow().partition());
        let here = near_first(self.local.iter().copied(), is_near);
        merged(
            here,
            self.remote
                .iter()
                .map(|head| turn_away(*head))
                .take_while(believed),
        )
    }
}

/// Dispatch keys of sorted local jobs. Among the first [`NEAR_SCAN`] jobs those of the caller's
/// thread keep their age, all others count as jobs of another thread. Reads only up to the next job
/// of the caller's thread: none behind it has an earlier dispatch key.
fn near_first(
    mut heads: impl Iterator<Item = ReadyKey>,
    is_near: impl Fn(&ReadyKey) -> bool,
) -> impl Iterator<Item = DispatchKey> {
    let mut near = None;
    let mut far = VecDeque::new();
    let mut read = 0;
    std::iter::from_fn(move || {
        while near.is_none() && (read < NEAR_SCAN || far.is_empty()) {
            let Some(head) = heads.next() else { break };
            if read < NEAR_SCAN && is_near(&head) {
                near = Some(turn_here(head));
            } else {
                far.push_back(turn_far(head));
            }
            read += 1;
        }
        match near {
            Some(turn) if far.front().is_none_or(|first| turn <= *first) => near.take(),
            _ => far.pop_front(),
        }
    })
}

/// Merges two sorted sequences.
fn merged(
    one: impl Iterator<Item = DispatchKey>,
    other: impl Iterator<Item = DispatchKey>,
) -> impl Iterator<Item = DispatchKey> {
    let mut one = one.peekable();
    let mut other = other.peekable();
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if first <= second => one.next(),
        (Some(_), None) => one.next(),
        _ => other.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::rows::{ReadyJob, ReadyRow};
    use crate::engine::post::thread_map::ThreadMap;
    use crate::id::{JobIndex, WorkflowId};

    fn head(partition: u16, priority: u8, millis: u64) -> ReadyKey {
        let since = Timestamp::from_micros(millis * 1_000);
        let workflow = WorkflowId::new(since, Partition(partition), 1);
        let queue = "q".to_owned();
        let handler = String::new();
        let limit_key = String::new();
        let entry = ReadyJob {
            queue,
            handler,
            limit_key,
            priority,
            since,
            workflow,
            job: JobIndex(0),
        };
        ReadyRow::read(&entry.row()).unwrap().place
    }

    /// Partition 0 is assigned to this server, partition 1 is not.
    fn check(heads: &[(u16, u8, u64)], now: u64, expected: &[(u16, u8, u64)]) {
        let mine = LocalPartitions::all(2);
        mine.assign(Partition(1), false);
        let mut all = KnownJobs::default();
        for &(partition, priority, millis) in heads {
            all.insert(
                head(partition, priority, millis),
                &mine,
                Timestamp::from_micros(10_000_000),
            );
        }
        let found: Vec<ReadyKey> = all
            .in_dispatch_order(
                Timestamp::from_micros(now * 1_000),
                ThreadMap::new(2, 1).near(0),
            )
            .map(|(_, _, head)| head)
            .collect();
        let expected: Vec<ReadyKey> = expected
            .iter()
            .map(|&(at, priority, millis)| head(at, priority, millis))
            .collect();
        assert_eq!(found, expected, "{heads:?} at {now}");
    }

    #[test]
    fn what_is_at_home_goes_first_unless_another_is_more_urgent_or_much_older() {
        check(
            &[(1, 0, 5_000), (0, 0, 6_000), (0, 0, 9_000)],
            10_000,
            &[(0, 0, 6_000), (1, 0, 5_000), (0, 0, 9_000)],
        );
        check(
            &[(1, 0, 8_000), (0, 0, 9_000)],
            10_000,
            &[(0, 0, 9_000), (1, 0, 8_000)],
        );
        check(
            &[(1, 1, 9_500), (0, 0, 1_000)],
            10_000,
            &[(1, 1, 9_500), (0, 0, 1_000)],
        );
    }

    #[test]
    fn what_was_read_long_ago_is_read_again_before_it_is_taken_for_want_of_others() {
        check(&[(1, 0, 8_000), (0, 0, 9_000)], 10_100, &[(0, 0, 9_000)]);
        check(&[(1, 0, 8_000)], 10_100, &[]);
        check(
            &[(1, 7, 9_900), (0, 0, 9_000)],
            10_100,
            &[(1, 7, 9_900), (0, 0, 9_000)],
        );
    }

    #[test]
    fn near_heads_go_first_as_if_all_were_sorted() {
        let is_near = |head: &ReadyKey| head.workflow().partition() == Partition(0);
        let mut random = 7_u64;
        for number in [0, 1, 2, 40, NEAR_SCAN - 1, NEAR_SCAN, NEAR_SCAN + 60] {
            for share in [0, 1, 8, 15, 16] {
                let mut next = |below: u64| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (random >> 33) % below
                };
                let one = |_| {
                    head(
                        u16::from(next(16) >= share),
                        next(2) as u8,
                        5_000 + next(100),
                    )
                };
                let heads: BTreeSet<ReadyKey> = (0..number).map(one).collect();
                let turn = |(at, head): (usize, &ReadyKey)| {
                    if at < NEAR_SCAN && is_near(head) {
                        turn_here(*head)
                    } else {
                        turn_far(*head)
                    }
                };
                let mut expected: Vec<DispatchKey> = heads.iter().enumerate().map(turn).collect();
                expected.sort();
                let found: Vec<DispatchKey> = near_first(heads.iter().copied(), is_near).collect();
                assert_eq!(found, expected, "{share} of 16 near, of {number}");
            }
        }
    }

    #[test]
    fn heads_change_sides_with_the_homes() {
        let mine = LocalPartitions::all(2);
        let mut heads = KnownJobs::default();
        heads.insert(head(0, 0, 1), &mine, Timestamp::default());
        heads.insert(head(1, 0, 2), &mine, Timestamp::default());
        mine.assign(Partition(0), false);
        heads.sort_out(&mine);
        assert_eq!(
            (heads.local.len(), heads.remote.len(), heads.len()),
            (1, 1, 2)
        );
        assert_eq!(heads.first(), Some(&head(0, 0, 1)));
        heads.pop_last();
        assert_eq!(heads.iter().collect::<Vec<_>>(), [&head(1, 0, 2)]);
    }

    #[test]
    fn what_a_thread_serves_itself_goes_first_unless_another_is_more_urgent_or_older() {
        let mine = LocalPartitions::all(2);
        let spread = ThreadMap::new(2, 2);
        let check = |heads: &[(u16, u8, u64)], expected: &[(u16, u8, u64)]| {
            let mut all = KnownJobs::default();
            heads.iter().for_each(|&(at, priority, millis)| {
                all.insert(head(at, priority, millis), &mine, Timestamp::default());
            });
            let found: Vec<ReadyKey> = all
                .in_dispatch_order(Timestamp::default(), spread.near(0))
                .map(|(.., head)| head)
                .collect();
            let expected: Vec<ReadyKey> = expected
                .iter()
                .map(|&(at, priority, millis)| head(at, priority, millis))
                .collect();
            assert_eq!(found, expected, "{heads:?}");
        };
        check(
            &[(1, 0, 5_000), (0, 0, 5_010)],
            &[(0, 0, 5_010), (1, 0, 5_000)],
        );
        check(
            &[(1, 0, 5_000), (0, 0, 5_030)],
            &[(1, 0, 5_000), (0, 0, 5_030)],
        );
        check(
            &[(1, 1, 5_010), (0, 0, 5_000)],
            &[(1, 1, 5_010), (0, 0, 5_000)],
        );
    }
}
