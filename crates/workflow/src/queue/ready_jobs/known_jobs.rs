//! The known ready jobs of a lane: local ones, and remote ones, which their assigned servers claim
//! first.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::codec::ReadyKey;
use crate::model::{Partition, Timestamp};
use crate::queue::LocalPartitions;

/// Time for which a remote job is left to its assigned server: it counts as this much younger. It
/// bounds the wait for a server without workers. Without it, 1.9 times as many writes are refused.
const REMOTE_DISPATCH_DELAY: Duration = Duration::from_secs(2);
/// Time for which a remote job that was read counts as still ready. Its assigned server claims it
/// without a notice.
const REMOTE_ROW_TTL: Duration = Duration::from_millis(50);

/// Order of a job among all that a server may claim: inverted priority, then time since which it is
/// ready.
pub(crate) type DispatchKey = (u8, Timestamp, ReadyKey);

/// The known ready jobs of a lane.
#[derive(Debug, Default)]
pub(crate) struct KnownJobs {
    pub(crate) local: BTreeSet<ReadyKey>,
    pub(crate) remote: BTreeSet<ReadyKey>,
    /// Time of the latest read of `remote`.
    read_at: Timestamp,
}

fn dispatch_key(ready_key: ReadyKey, delay: Duration) -> DispatchKey {
    (
        u8::MAX - ready_key.priority(),
        ready_key.since() + delay,
        ready_key,
    )
}

impl KnownJobs {
    fn set_for(
        &mut self,
        partition: Partition,
        local_partitions: &LocalPartitions,
    ) -> &mut BTreeSet<ReadyKey> {
        if local_partitions.contains(partition) {
            &mut self.local
        } else {
            &mut self.remote
        }
    }

    /// Forgets the local jobs, or the remote ones if the partition is remote.
    pub(super) fn clear(&mut self, partition: Partition, local_partitions: &LocalPartitions) {
        self.set_for(partition, local_partitions).clear();
    }

    pub(crate) fn insert(
        &mut self,
        ready_key: ReadyKey,
        local_partitions: &LocalPartitions,
        now: Timestamp,
    ) {
        let set = self.set_for(ready_key.workflow().partition(), local_partitions);
        set.insert(ready_key);
        if !local_partitions.contains(ready_key.workflow().partition()) {
            self.read_at = now;
        }
    }

    pub(crate) fn remove(&mut self, ready_key: &ReadyKey) -> bool {
        self.local.remove(ready_key) || self.remote.remove(ready_key)
    }

    pub(crate) fn contains(&self, ready_key: &ReadyKey) -> bool {
        self.local.contains(ready_key) || self.remote.contains(ready_key)
    }

    pub(crate) fn len(&self) -> usize {
        self.local.len() + self.remote.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.local.is_empty() && self.remote.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ReadyKey> {
        self.local.iter().chain(&self.remote)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&ReadyKey) -> bool) {
        self.local.retain(&keep);
        self.remote.retain(&keep);
    }

    /// Forgets the last job, a remote one if there is any.
    pub(super) fn pop_last(&mut self) -> Option<ReadyKey> {
        self.remote.pop_last().or_else(|| self.local.pop_last())
    }

    /// Returns the most urgent job.
    pub(crate) fn first(&self) -> Option<&ReadyKey> {
        self.local
            .first()
            .into_iter()
            .chain(self.remote.first())
            .min()
    }

    /// Sorts the jobs again into local and remote ones after partitions were reassigned.
    pub(crate) fn reclassify(&mut self, local_partitions: &LocalPartitions) {
        for ready_key in std::mem::take(&mut self.local)
            .into_iter()
            .chain(std::mem::take(&mut self.remote))
        {
            self.set_for(ready_key.workflow().partition(), local_partitions)
                .insert(ready_key);
        }
    }

    /// Records a read of remote partitions.
    pub(crate) fn record_read(&mut self, now: Timestamp) {
        self.read_at = now;
    }

    /// Whether remote jobs may have been claimed since they were read.
    pub(crate) fn are_stale(&self, now: Timestamp) -> bool {
        !self.remote.is_empty() && now.since(self.read_at) > REMOTE_ROW_TTL
    }

    /// Known jobs in dispatch order; remote jobs count as 2 s younger. Remote jobs that were read
    /// more than 50 ms ago are left out, unless they precede the first local job.
    pub(crate) fn in_dispatch_order(&self, now: Timestamp) -> impl Iterator<Item = DispatchKey> {
        let local = |ready_key: &ReadyKey| dispatch_key(*ready_key, Duration::ZERO);
        let remote = |ready_key: &ReadyKey| dispatch_key(*ready_key, REMOTE_DISPATCH_DELAY);
        let first_local = self.local.first().map(local);
        let stale = self.are_stale(now);
        let is_usable = move |dispatch_key: &DispatchKey| {
            !stale || first_local.is_some_and(|first| *dispatch_key < first)
        };
        merge_two(
            self.local.iter().map(local),
            self.remote.iter().map(remote).take_while(is_usable),
        )
    }
}

/// Merges two sorted sequences.
fn merge_two(
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
    use crate::codec::{ReadyJob, ReadyRow};
    use crate::model::{JobIndex, WorkflowId};

    fn ready_key(partition: u16, priority: u8, millis: u64) -> ReadyKey {
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
        ReadyRow::read(&entry.row()).unwrap().key
    }

    /// Partition 0 is assigned to this server, partition 1 is not.
    fn check(heads: &[(u16, u8, u64)], now: u64, expected: &[(u16, u8, u64)]) {
        let local_partitions = LocalPartitions::all(2);
        local_partitions.assign(Partition(1), false);
        let mut all = KnownJobs::default();
        for &(partition, priority, millis) in heads {
            all.insert(
                ready_key(partition, priority, millis),
                &local_partitions,
                Timestamp::from_micros(10_000_000),
            );
        }
        let found: Vec<ReadyKey> = all
            .in_dispatch_order(Timestamp::from_micros(now * 1_000))
            .map(|(_, _, ready_key)| ready_key)
            .collect();
        let expected: Vec<ReadyKey> = expected
            .iter()
            .map(|&(at, priority, millis)| ready_key(at, priority, millis))
            .collect();
        assert_eq!(found, expected, "{heads:?} at {now}");
    }

    #[test]
    fn local_jobs_go_first_unless_another_is_more_urgent_or_much_older() {
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
    fn stale_remote_jobs_are_read_again_before_they_are_claimed() {
        check(&[(1, 0, 8_000), (0, 0, 9_000)], 10_100, &[(0, 0, 9_000)]);
        check(&[(1, 0, 8_000)], 10_100, &[]);
        check(
            &[(1, 7, 9_900), (0, 0, 9_000)],
            10_100,
            &[(1, 7, 9_900), (0, 0, 9_000)],
        );
    }

    #[test]
    fn jobs_are_reclassified_when_partitions_are_reassigned() {
        let local_partitions = LocalPartitions::all(2);
        let mut heads = KnownJobs::default();
        heads.insert(ready_key(0, 0, 1), &local_partitions, Timestamp::default());
        heads.insert(ready_key(1, 0, 2), &local_partitions, Timestamp::default());
        local_partitions.assign(Partition(0), false);
        heads.reclassify(&local_partitions);
        assert_eq!(
            (heads.local.len(), heads.remote.len(), heads.len()),
            (1, 1, 2)
        );
        assert_eq!(heads.first(), Some(&ready_key(0, 0, 1)));
        heads.pop_last();
        assert_eq!(heads.iter().collect::<Vec<_>>(), [&ready_key(1, 0, 2)]);
    }
}
