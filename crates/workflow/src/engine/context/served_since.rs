//! Time since which workers could reach a server that has the store. During a gap, a live worker
//! could not extend its leases, so they end one lease later.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::model::{Partition, Timestamp};

/// Time since which each partition has been served without a gap.
#[derive(Debug)]
pub(crate) struct ServedSince {
    /// Times by partition, in microseconds. 0 if no gap is known.
    since_by_partition: Vec<AtomicU64>,
    /// Whether a server looks for gaps. An engine that is used without one has none.
    is_monitored: AtomicBool,
}

impl ServedSince {
    pub(super) fn new(partitions: u16) -> Self {
        Self {
            since_by_partition: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            is_monitored: AtomicBool::new(false),
        }
    }

    fn entry(&self, partition: Partition) -> Option<&AtomicU64> {
        self.since_by_partition.get(usize::from(partition.0))
    }

    /// Returns the time since which this partition has been served.
    pub(crate) fn since(&self, partition: Partition) -> Timestamp {
        Timestamp::from_micros(self.entry(partition).map_or(0, |since| since.load(Relaxed)))
    }

    /// Records that all partitions are served from `now` on, after a gap.
    pub(crate) fn start_all(&self, now: Timestamp) {
        self.is_monitored.store(true, Relaxed);
        self.since_by_partition
            .iter()
            .for_each(|since| _ = since.fetch_max(now.micros(), Relaxed));
    }

    /// Records that a partition is served again, after it could not be reached.
    pub(crate) fn restart(&self, partition: Partition, now: Timestamp) {
        if let Some(since) = self
            .entry(partition)
            .filter(|_| self.is_monitored.load(Relaxed))
        {
            since.fetch_max(now.micros(), Relaxed);
        }
    }

    /// Shortens gaps by the record of another server, which had served all partitions since
    /// `peer_since` at its last heartbeat.
    pub(crate) fn merge_peer(&self, last_heartbeat: Timestamp, peer_since: Timestamp) {
        for since in &self.since_by_partition {
            let own = since.load(Relaxed);
            if own > peer_since.micros() && last_heartbeat.micros() >= own {
                // The exchange fails if another gap has just ended.
                let _lost_race = since.compare_exchange(own, peer_since.micros(), Relaxed, Relaxed);
            }
        }
    }

    /// Returns the time since which all partitions have been served. `None` if no server looks for
    /// gaps.
    pub(crate) fn all_since(&self) -> Option<Timestamp> {
        let latest = self
            .since_by_partition
            .iter()
            .map(|since| since.load(Relaxed))
            .max();
        latest
            .filter(|_| self.is_monitored.load(Relaxed))
            .map(Timestamp::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_gap_is_one_only_if_no_server_was_there() {
        let served = ServedSince::new(2);
        served.restart(Partition(0), at(1));
        assert_eq!(
            (served.since(Partition(0)), served.all_since()),
            (at(0), None),
            "nobody looks for gaps"
        );
        served.start_all(at(100));
        served.restart(Partition(1), at(150));
        assert_eq!(
            [0, 1].map(|at| served.since(Partition(at))),
            [at(100), at(150)]
        );
        assert_eq!(served.all_since(), Some(at(150)));
        // A server that may have died before this one began proves nothing.
        served.merge_peer(at(99), at(5));
        assert_eq!(served.since(Partition(0)), at(100));
        // This server was there all the time, for one of the partitions.
        served.merge_peer(at(120), at(5));
        assert_eq!(
            [0, 1].map(|at| served.since(Partition(at))),
            [at(5), at(150)]
        );
        served.merge_peer(at(151), at(110));
        assert_eq!(
            [0, 1].map(|at| served.since(Partition(at))),
            [at(5), at(110)]
        );
    }
}
