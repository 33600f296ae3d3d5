//! Counters of the API, and the latest samples of queues and workflows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_workflow::AttemptCounts;
use tokio::sync::Notify;

/// Event with a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A workflow was created.
    Created,
    /// A job was handed to a worker.
    Claimed,
    /// An attempt succeeded.
    Succeeded,
    /// An attempt failed, and the job with it.
    Failed,
    /// An attempt failed, and another follows.
    TriedAgain,
    /// A lease was extended.
    Extended,
    /// A report or an extension named a lease that was lost.
    LeaseLost,
    /// A request arrived.
    Request,
    /// A request, or an item of it, failed because of the store.
    StoreError,
    /// A request, or an item of it, failed because other requests had used up the quota.
    Overloaded,
    /// A change was made again, because another server had changed the workflow.
    Conflict,
    /// A worker that waited was woken.
    WakeUp,
}

/// Names of the counters, in the order of [`CountedEvent`].
const NAMES: [&str; 12] = [
    "tidegate.workflows.created",
    "tidegate.jobs.claimed",
    "tidegate.jobs.succeeded",
    "tidegate.jobs.failed",
    "tidegate.jobs.tried_again",
    "tidegate.leases.extended",
    "tidegate.leases.lost",
    "tidegate.api.requests",
    "tidegate.api.store_errors",
    "tidegate.api.overloaded",
    "tidegate.workflows.conflicts",
    "tidegate.workers.woken",
];

/// Sample of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSample {
    /// Name of the queue.
    pub name: String,
    /// Number of ready jobs.
    pub ready: u64,
    /// Number of running jobs.
    pub running: u64,
    /// Seconds for which the oldest job has been ready.
    pub age: u64,
    /// Number of workers that wait for a job of the queue.
    pub waiting_workers: u64,
}

/// Counts of workflows and their jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Census {
    /// Number of workflows by status.
    pub workflows: Vec<(&'static str, u64)>,
    /// Number of jobs by state, of workflows that have not ended.
    pub jobs: Vec<(&'static str, u64)>,
    /// Number of partitions that are assigned to this server.
    pub home_partitions: u64,
}

/// Most queues with a sample of their own: those with the most ready jobs.
pub const MOST_QUEUES: usize = 1_000;
/// Most bytes of a queue's name in a sample.
const LONGEST_NAME: usize = 256;
/// Name of the sum of all other queues.
pub const OVERFLOW: &str = "_overflow";

fn bounded(samples: Vec<QueueSample>) -> Vec<QueueSample> {
    // The sum of earlier samples is no queue.
    let (summed, mut samples): (Vec<_>, Vec<_>) = samples
        .into_iter()
        .partition(|sample| sample.name == OVERFLOW);
    // Queues with long names come last, and then those with few ready jobs.
    samples.sort_by_key(|sample| {
        (
            sample.name.len() > LONGEST_NAME,
            std::cmp::Reverse(sample.ready),
        )
    });
    let short = samples
        .iter()
        .take(MOST_QUEUES)
        .take_while(|sample| sample.name.len() <= LONGEST_NAME)
        .count();
    let mut others = samples.split_off(short);
    others.extend(summed);
    let mut sum = QueueSample {
        name: OVERFLOW.to_owned(),
        ready: 0,
        running: 0,
        age: 0,
        waiting_workers: 0,
    };
    for other in &others {
        sum.ready += other.ready;
        sum.running += other.running;
        sum.age = sum.age.max(other.age);
        sum.waiting_workers += other.waiting_workers;
    }
    samples.sort_by(|left, right| left.name.cmp(&right.name));
    samples.extend((!others.is_empty()).then_some(sum));
    samples
}

/// Counters and samples of the workflow API.
#[derive(Debug, Default)]
pub struct Activity {
    counters: [AtomicU64; NAMES.len()],
    event_streams: AtomicU64,
    queues: Mutex<Vec<QueueSample>>,
    census: Mutex<Census>,
    /// Notified when a sample of the queues is needed.
    wanted: Notify,
    clock_skew: Mutex<Option<i64>>,
    tally: Mutex<Option<Arc<AttemptCounts>>>,
    risks: Mutex<Vec<String>>,
}

impl Activity {
    /// Adds `number` to the counter of an event.
    pub fn add(&self, event: Event, number: u64) {
        self.counters[event as usize].fetch_add(number, Relaxed);
    }

    /// Returns the counter of an event.
    pub(crate) fn get(&self, event: Event) -> u64 {
        self.counters[event as usize].load(Relaxed)
    }

    /// Returns the names and values of all counters.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES
            .into_iter()
            .zip(self.counters.iter().map(|counter| counter.load(Relaxed)))
    }

    /// Microseconds by which the clock of this machine is ahead of the store's. `None` if it is the
    /// store's clock.
    pub fn clock_skew(&self) -> Option<i64> {
        *self
            .clock_skew
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the microseconds by which the clock of this machine is ahead of the store's.
    pub fn put_clock_skew(&self, skew: Option<i64>) {
        *self
            .clock_skew
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = skew;
    }

    /// Reasons for which acknowledged work could be lost, one sentence each.
    pub fn risks(&self) -> Vec<String> {
        self.risks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets the reasons for which acknowledged work could be lost. Returns the new ones.
    pub fn put_risks(&self, risks: Vec<String>) -> Vec<String> {
        let mut known = self.risks.lock().unwrap_or_else(PoisonError::into_inner);
        let news = risks
            .iter()
            .filter(|risk| !known.contains(risk))
            .cloned()
            .collect();
        *known = risks;
        news
    }

    /// Counts of the engine. `None` before there is an engine.
    pub fn tally(&self) -> Option<Arc<AttemptCounts>> {
        self.tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets the counts of the engine.
    pub fn put_tally(&self, tally: Arc<AttemptCounts>) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = Some(tally);
    }

    /// Number of open event streams.
    pub fn event_streams(&self) -> u64 {
        self.event_streams.load(Relaxed)
    }

    /// Counts an event stream until the result is dropped.
    pub(crate) fn open_stream(self: &Arc<Self>) -> OpenStream {
        self.event_streams.fetch_add(1, Relaxed);
        OpenStream(self.clone())
    }

    /// Returns the latest sample of the queues, a few seconds old, and requests a new one.
    pub fn queues(&self) -> Vec<QueueSample> {
        self.look();
        self.queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Requests a new sample of queues and workflows.
    pub(crate) fn look(&self) {
        self.wanted.notify_one();
    }

    /// Returns the counts of workflows, a few seconds old.
    pub fn census(&self) -> Census {
        self.census
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets the counts of workflows.
    pub fn put_census(&self, census: Census) {
        *self.census.lock().unwrap_or_else(PoisonError::into_inner) = census;
    }

    /// Returns when a sample was requested since this returned last. Only one task at a time may
    /// wait.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Sets the samples of the queues. Clients name queues, so the number of samples is bounded.
    pub fn put_queues(&self, samples: Vec<QueueSample>) {
        let samples = bounded(samples);
        *self.queues.lock().unwrap_or_else(PoisonError::into_inner) = samples;
    }
}

/// An open event stream.
pub(crate) struct OpenStream(Arc<Activity>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.event_streams.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str, ready: u64) -> QueueSample {
        QueueSample {
            name: name.to_owned(),
            ready,
            running: 1,
            age: ready,
            waiting_workers: 1,
        }
    }

    #[test]
    fn queues_beyond_the_bound_are_summed() {
        let few = vec![sample("a", 1), sample("b", 2)];
        assert_eq!(bounded(few.clone()), few);
        let long = "x".repeat(LONGEST_NAME + 1);
        assert_eq!(
            bounded(vec![sample(&long, 3), sample("a", 1)]),
            [sample("a", 1), sample(OVERFLOW, 3)]
        );
        let many = (0..MOST_QUEUES as u64 + 2)
            .map(|ready| sample(&format!("q{ready}"), ready))
            .collect();
        let kept = bounded(many);
        let sum = QueueSample {
            name: OVERFLOW.to_owned(),
            ready: 1,
            running: 2,
            age: 1,
            waiting_workers: 2,
        };
        assert_eq!((kept.len(), kept.last()), (MOST_QUEUES + 1, Some(&sum)));
    }
}
