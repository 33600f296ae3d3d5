//! Health of the store by partition. Circuit breakers keep failures of one partition from delaying
//! the others, and operators can read these failures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::error::EngineError;
use crate::id::Partition;
use crate::store::error::StoreError;
use crate::store::probe::Probe;

/// Time for which successful probes are ignored, after an operation failed that a probe had found
/// to work. It doubles with each such failure.
const DOUBT: Duration = Duration::from_millis(500);
/// Most doublings of that time, so it is at most 8 s.
const DOUBLINGS: u32 = 4;

/// Least duration of failures that is a gap: workers try again within this time.
const MIN_GAP: Duration = Duration::from_secs(2);

/// Failures of a partition, by operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trouble {
    /// Error of reads, if they fail.
    pub reads: Option<StoreError>,
    /// Error of removals, if they fail.
    pub removals: Option<StoreError>,
    /// Error of other writes, if they fail.
    pub writes: Option<StoreError>,
}

/// Work that was due and was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
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
pub(crate) struct Troubles {
    /// Number of partitions with breakers. While it is 0, a success costs one atomic load.
    number: AtomicUsize,
    each: Mutex<BTreeMap<Partition, PartitionBreakers>>,
    unserved: Mutex<Option<Unserved>>,
    /// Partitions that work again after a gap.
    recovered: Mutex<Vec<Partition>>,
    began: Notify,
    /// Notified of each new failure, too, for the task that tries again.
    called: Notify,
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
            Self::HalfOpen(number) if 2 * number < super::sweep::SWEEP => {
                Self::HalfOpen(2 * number)
            }
            Self::Open(_) => Self::HalfOpen(1),
            Self::Closed | Self::HalfOpen(_) => Self::Closed,
        }
    }
}

impl PartitionBreakers {
    fn of(&mut self, asked: StoreOperation) -> &mut Breaker {
        match asked {
            StoreOperation::Read => &mut self.reads,
            StoreOperation::Removal => &mut self.removals,
            StoreOperation::Write => &mut self.writes,
        }
    }

    fn failed(&mut self, asked: StoreOperation, error: &StoreError) {
        let trust = self.of(asked);
        let relapsed = matches!(trust, Breaker::HalfOpen(_));
        *trust = Breaker::Open(error.clone());
        if relapsed {
            self.held_open_until = Some(Instant::now() + DOUBT * (1 << self.trips.min(DOUBLINGS)));
            self.trips += 1;
        }
    }

    /// Half-opens the breaker after a successful probe, unless probes are ignored now.
    fn probe_succeeded(&mut self, asked: StoreOperation) {
        let believed = self
            .held_open_until
            .is_none_or(|until| Instant::now() >= until);
        let trust = self.of(asked);
        if believed && trust.error().is_some() {
            *trust = Breaker::HalfOpen(1);
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

    fn is_whole(&self) -> bool {
        [&self.reads, &self.removals, &self.writes]
            .into_iter()
            .all(|trust| matches!(trust, Breaker::Closed))
    }

    fn trouble(&self) -> Option<Trouble> {
        let [reads, removals, writes] =
            [&self.reads, &self.removals, &self.writes].map(|trust| trust.error().cloned());
        let trouble = Trouble {
            reads,
            removals,
            writes,
        };
        (trouble != Trouble::default()).then_some(trouble)
    }
}

impl Troubles {
    fn each(&self) -> MutexGuard<'_, BTreeMap<Partition, PartitionBreakers>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no operation has failed lately.
    pub(crate) fn is_none(&self) -> bool {
        self.number.load(Relaxed) == 0
    }

    /// Records the outcome of an operation. A stored record that cannot be decoded is no failure of
    /// the store.
    pub(crate) fn note<T>(
        &self,
        partition: Partition,
        asked: StoreOperation,
        outcome: Result<T, &StoreError>,
    ) {
        match outcome {
            Err(
                error @ (StoreError::Unavailable { .. }
                | StoreError::Unknown { .. }
                | StoreError::Torn { .. }),
            ) => {
                self.failed(partition, asked, error);
            }
            Ok(_) if !self.is_none() => self.change(partition, |standing| match asked {
                StoreOperation::Read => standing.reads = Breaker::Closed,
                StoreOperation::Removal | StoreOperation::Write => {
                    *standing.of(asked) = standing.of(asked).after_success()
                }
            }),
            _ => {}
        }
    }

    fn failed(&self, partition: Partition, asked: StoreOperation, error: &StoreError) {
        let mut each = self.each();
        let standing = each.entry(partition).or_default();
        let news = standing.of(asked).error().is_none();
        standing.failed(asked, error);
        let _ends = standing.update_gap();
        self.number.store(each.len(), Relaxed);
        drop(each);
        if news {
            self.began.notify_one();
            self.called.notify_one();
        }
    }

    fn change(&self, partition: Partition, change: impl FnOnce(&mut PartitionBreakers)) {
        let mut each = self.each();
        let Some(standing) = each.get_mut(&partition) else {
            return;
        };
        change(standing);
        if standing.update_gap() {
            self.recovered
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(partition);
        }
        if standing.is_whole() {
            each.remove(&partition);
        }
        self.number.store(each.len(), Relaxed);
    }

    /// Records the outcome of a probe, which proves less than a write of a workflow does.
    pub(crate) fn probed(&self, partition: Partition, probe: &Probe) {
        let Probe {
            reads,
            removals,
            writes,
        } = probe;
        self.note(partition, StoreOperation::Read, reads.as_ref());
        for (asked, outcome) in [
            (StoreOperation::Removal, removals),
            (StoreOperation::Write, writes),
        ] {
            match outcome {
                Ok(()) => self.change(partition, |standing| standing.probe_succeeded(asked)),
                Err(error) => self.note(partition, asked, Err::<(), _>(error)),
            }
        }
    }

    /// Returns how many due workflows a sweep may try at once in a partition: at most `max`, and 0
    /// if it would fail.
    pub(crate) fn trusted(
        &self,
        partition: Partition,
        asked: StoreOperation,
        most: usize,
    ) -> usize {
        if self.is_none() {
            return most;
        }
        let mut each = self.each();
        let Some(standing) = each.get_mut(&partition) else {
            return most;
        };
        let readable = standing.reads.error().is_none();
        match standing.of(asked) {
            Breaker::Closed if readable => most,
            Breaker::HalfOpen(number) if readable => most.min(*number),
            _ => 0,
        }
    }

    /// Returns the partitions that work again after a gap, and forgets them.
    pub(crate) fn take_recovered(&self) -> Vec<Partition> {
        std::mem::take(
            &mut *self
                .recovered
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Whether reads or writes of a partition fail at the moment, as far as is known.
    pub(crate) fn is_failing(&self, partition: Partition) -> bool {
        !self.is_none()
            && self
                .each()
                .get(&partition)
                .is_some_and(|standing| standing.failing_since.is_some())
    }

    /// Returns the partitions that cannot be read, with their errors.
    pub(crate) fn unreadable(&self) -> BTreeMap<Partition, StoreError> {
        if self.is_none() {
            return BTreeMap::new();
        }
        let each = self.each();
        each.iter()
            .filter_map(|(at, standing)| Some((*at, standing.reads.error()?.clone())))
            .collect()
    }

    /// Returns the partitions in which some operation fails.
    pub(crate) fn all(&self) -> BTreeMap<Partition, Trouble> {
        if self.is_none() {
            return BTreeMap::new();
        }
        self.each()
            .iter()
            .filter_map(|(at, standing)| Some((*at, standing.trouble()?)))
            .collect()
    }

    /// Waits until an operation that worked has failed.
    pub(crate) async fn began(&self) {
        self.began.notified().await;
    }

    /// Waits until an operation that worked has failed, for the task that tries again.
    pub(crate) async fn called(&self) {
        self.called.notified().await;
    }

    /// Counts work that was due and was not done.
    pub(crate) fn unserved(&self, error: EngineError) {
        let mut unserved = self.unserved.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = unserved.as_ref().map_or(0, |unserved| unserved.attempts) + 1;
        *unserved = Some(Unserved { attempts, error });
    }

    /// Returns the missed work since the last call, if any.
    pub(crate) fn take_unserved(&self) -> Option<Unserved> {
        self.unserved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
