//! Health of the store by partition. Circuit breakers keep failures of one partition from delaying
//! the others, and operators can read these failures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::context::error::EngineError;
use crate::codec::StoreError;
use crate::model::Partition;
use crate::store::query::probe::Probe;

/// Time for which successful probes are ignored, after an operation failed that a probe had found
/// to work. It doubles with each such failure.
const HOLD_OPEN_INTERVAL: Duration = Duration::from_millis(500);
/// Most doublings of that time, so it is at most 8 s.
const MAX_DOUBLINGS: u32 = 4;

/// Least duration of failures that is a gap: workers try again within this time.
const MIN_GAP: Duration = Duration::from_secs(2);

/// Failures of a partition, by operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreFailure {
    /// Error of reads, if they fail.
    pub reads: Option<StoreError>,
    /// Error of removals, if they fail.
    pub removals: Option<StoreError>,
    /// Error of other writes, if they fail.
    pub writes: Option<StoreError>,
}

/// Work that was due and was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedWork {
    /// Number of failed attempts.
    pub attempts: u64,
    /// Error of the latest attempt.
    pub error: EngineError,
}

/// Kind of an operation on a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreOperation {
    Read,
    Removal,
    Write,
}

/// Circuit breaker of one kind of operation in a partition.
#[derive(Debug, Clone, Default)]
enum Breaker {
    /// The operation works.
    #[default]
    Closed,
    /// The operation failed, and works again as far as is known. The number bounds the workflows
    /// that a sweep tries at once.
    HalfOpen(usize),
    /// The operation failed when it was last tried.
    Open(StoreError),
}

/// Circuit breakers of a partition in which an operation failed lately.
#[derive(Debug, Default)]
struct PartitionBreakers {
    reads: Breaker,
    removals: Breaker,
    writes: Breaker,
    /// Start of the current failure of reads or writes.
    failing_since: Option<Instant>,
    /// Number of failures of operations that a probe had found to work.
    trips: u32,
    /// Time until which successful probes are ignored.
    held_open_until: Option<Instant>,
}

/// Failures of the store, in all partitions.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    /// Number of partitions with breakers. While it is 0, a success costs one atomic load.
    partition_count: AtomicUsize,
    by_partition: Mutex<BTreeMap<Partition, PartitionBreakers>>,
    missed_work: Mutex<Option<MissedWork>>,
    /// Partitions that work again after a gap.
    recovered: Mutex<Vec<Partition>>,
    next_failure: Notify,
    /// Notified of each new failure, too, for the task that tries again.
    next_failure_to_retry: Notify,
}

impl Breaker {
    fn error(&self) -> Option<&StoreError> {
        match self {
            Self::Open(error) => Some(error),
            Self::Closed | Self::HalfOpen(_) => None,
        }
    }

    /// Returns the breaker after a success.
    fn after_success(&self) -> Self {
        match self {
            Self::HalfOpen(number) if 2 * number < super::sweep::MAX_DUE => {
                Self::HalfOpen(2 * number)
            }
            Self::Open(_) => Self::HalfOpen(1),
            Self::Closed | Self::HalfOpen(_) => Self::Closed,
        }
    }
}

impl PartitionBreakers {
    fn breaker_for(&mut self, operation: StoreOperation) -> &mut Breaker {
        match operation {
            StoreOperation::Read => &mut self.reads,
            StoreOperation::Removal => &mut self.removals,
            StoreOperation::Write => &mut self.writes,
        }
    }

    fn on_failure(&mut self, operation: StoreOperation, error: &StoreError) {
        let breaker = self.breaker_for(operation);
        let was_half_open = matches!(breaker, Breaker::HalfOpen(_));
        *breaker = Breaker::Open(error.clone());
        if was_half_open {
            self.held_open_until =
                Some(Instant::now() + HOLD_OPEN_INTERVAL * (1 << self.trips.min(MAX_DOUBLINGS)));
            self.trips += 1;
        }
    }

    /// Half-opens the breaker after a successful probe, unless probes are ignored now.
    fn probe_succeeded(&mut self, operation: StoreOperation) {
        let accepts_probes = self
            .held_open_until
            .is_none_or(|until| Instant::now() >= until);
        let breaker = self.breaker_for(operation);
        if accepts_probes && breaker.error().is_some() {
            *breaker = Breaker::HalfOpen(1);
        }
    }

    /// Updates the start of the current failure. Returns whether a gap ends now.
    fn update_gap(&mut self) -> bool {
        if self.reads.error().is_some() || self.writes.error().is_some() {
            self.failing_since.get_or_insert_with(Instant::now);
            return false;
        }
        self.failing_since
            .take()
            .is_some_and(|since| since.elapsed() >= MIN_GAP)
    }

    fn all_closed(&self) -> bool {
        [&self.reads, &self.removals, &self.writes]
            .into_iter()
            .all(|breaker| matches!(breaker, Breaker::Closed))
    }

    fn failure(&self) -> Option<StoreFailure> {
        let [reads, removals, writes] =
            [&self.reads, &self.removals, &self.writes].map(|breaker| breaker.error().cloned());
        let failure = StoreFailure {
            reads,
            removals,
            writes,
        };
        (failure != StoreFailure::default()).then_some(failure)
    }
}

impl StoreHealth {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Partition, PartitionBreakers>> {
        self.by_partition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no operation has failed lately.
    pub(crate) fn is_healthy(&self) -> bool {
        self.partition_count.load(Relaxed) == 0
    }

    /// Records the outcome of an operation. A stored record that cannot be decoded is no failure of
    /// the store.
    pub(crate) fn record<T>(
        &self,
        partition: Partition,
        operation: StoreOperation,
        outcome: Result<T, &StoreError>,
    ) {
        match outcome {
            Err(
                error @ (StoreError::Unavailable { .. }
                | StoreError::Unknown { .. }
                | StoreError::PartialWrite { .. }),
            ) => {
                self.on_failure(partition, operation, error);
            }
            Ok(_) if !self.is_healthy() => self.update(partition, |breakers| match operation {
                StoreOperation::Read => breakers.reads = Breaker::Closed,
                StoreOperation::Removal | StoreOperation::Write => {
                    *breakers.breaker_for(operation) =
                        breakers.breaker_for(operation).after_success()
                }
            }),
            _ => {}
        }
    }

    fn on_failure(&self, partition: Partition, operation: StoreOperation, error: &StoreError) {
        let mut by_partition = self.lock();
        let breakers = by_partition.entry(partition).or_default();
        let is_new = breakers.breaker_for(operation).error().is_none();
        breakers.on_failure(operation, error);
        let _gap_ended = breakers.update_gap();
        self.partition_count.store(by_partition.len(), Relaxed);
        drop(by_partition);
        if is_new {
            self.next_failure.notify_one();
            self.next_failure_to_retry.notify_one();
        }
    }

    fn update(&self, partition: Partition, update: impl FnOnce(&mut PartitionBreakers)) {
        let mut by_partition = self.lock();
        let Some(breakers) = by_partition.get_mut(&partition) else {
            return;
        };
        update(breakers);
        if breakers.update_gap() {
            self.recovered
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(partition);
        }
        if breakers.all_closed() {
            by_partition.remove(&partition);
        }
        self.partition_count.store(by_partition.len(), Relaxed);
    }

    /// Records the outcome of a probe, which proves less than a write of a workflow does.
    pub(crate) fn record_probe(&self, partition: Partition, probe: &Probe) {
        let Probe {
            reads,
            removals,
            writes,
        } = probe;
        self.record(partition, StoreOperation::Read, reads.as_ref());
        for (operation, outcome) in [
            (StoreOperation::Removal, removals),
            (StoreOperation::Write, writes),
        ] {
            match outcome {
                Ok(()) => self.update(partition, |breakers| breakers.probe_succeeded(operation)),
                Err(error) => self.record(partition, operation, Err::<(), _>(error)),
            }
        }
    }

    /// Returns how many due workflows a sweep may try at once in a partition: at most `max`, and 0
    /// if it would fail.
    pub(crate) fn allowed(
        &self,
        partition: Partition,
        operation: StoreOperation,
        max: usize,
    ) -> usize {
        if self.is_healthy() {
            return max;
        }
        let mut by_partition = self.lock();
        let Some(breakers) = by_partition.get_mut(&partition) else {
            return max;
        };
        let readable = breakers.reads.error().is_none();
        match breakers.breaker_for(operation) {
            Breaker::Closed if readable => max,
            Breaker::HalfOpen(number) if readable => max.min(*number),
            _ => 0,
        }
    }

    /// Returns the partitions that work again after a gap, and forgets them.
    pub(crate) fn drain_recovered(&self) -> Vec<Partition> {
        std::mem::take(
            &mut *self
                .recovered
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Whether reads or writes of a partition fail at the moment, as far as is known.
    pub(crate) fn is_failing(&self, partition: Partition) -> bool {
        !self.is_healthy()
            && self
                .lock()
                .get(&partition)
                .is_some_and(|breakers| breakers.failing_since.is_some())
    }

    /// Returns the partitions that cannot be read, with their errors.
    pub(crate) fn unreadable(&self) -> BTreeMap<Partition, StoreError> {
        if self.is_healthy() {
            return BTreeMap::new();
        }
        let by_partition = self.lock();
        by_partition
            .iter()
            .filter_map(|(partition, breakers)| Some((*partition, breakers.reads.error()?.clone())))
            .collect()
    }

    /// Returns the partitions in which some operation fails.
    pub(crate) fn failures(&self) -> BTreeMap<Partition, StoreFailure> {
        if self.is_healthy() {
            return BTreeMap::new();
        }
        self.lock()
            .iter()
            .filter_map(|(partition, breakers)| Some((*partition, breakers.failure()?)))
            .collect()
    }

    /// Waits until an operation that worked has failed.
    pub(crate) async fn next_failure(&self) {
        self.next_failure.notified().await;
    }

    /// Waits until an operation that worked has failed, for the task that tries again.
    pub(crate) async fn next_failure_to_retry(&self) {
        self.next_failure_to_retry.notified().await;
    }

    /// Counts work that was due and was not done.
    pub(crate) fn record_missed_work(&self, error: EngineError) {
        let mut missed = self
            .missed_work
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let attempts = missed.as_ref().map_or(0, |missed| missed.attempts) + 1;
        *missed = Some(MissedWork { attempts, error });
    }

    /// Returns the missed work since the last call, if any.
    pub(crate) fn take_missed_work(&self) -> Option<MissedWork> {
        self.missed_work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
