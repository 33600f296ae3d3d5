//! Counters of the API, and the latest samples of queues and workflows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_workflow::AttemptCounts;
use tokio::sync::Notify;

use crate::http::lock;

/// Event with a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedEvent {
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
const COUNTER_NAMES: [&str; 12] = [
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
pub struct WorkflowCounts {
    /// Number of workflows by status.
    pub workflows: Vec<(&'static str, u64)>,
    /// Number of jobs by state, of workflows that have not ended.
    pub jobs: Vec<(&'static str, u64)>,
    /// Number of partitions that are assigned to this server.
    pub home_partitions: u64,
}

/// Age at which counts of workflows are too old: they are taken every five seconds while a client
/// reads them.
const MAX_COUNTS_AGE: Duration = Duration::from_secs(15);

/// Most queues with a sample of their own: those with the most ready jobs.
pub const MAX_QUEUE_SAMPLES: usize = 1_000;
/// Most bytes of a queue's name in a sample.
const MAX_NAME_BYTES: usize = 256;
/// Name of the sum of all other queues.
pub const OVERFLOW_QUEUE: &str = "_overflow";

fn bounded(samples: Vec<QueueSample>) -> Vec<QueueSample> {
    // The sum of earlier samples is no queue.
    let (summed, mut samples): (Vec<_>, Vec<_>) = samples
        .into_iter()
        .partition(|sample| sample.name == OVERFLOW_QUEUE);
    // Queues with long names come last, and then those with few ready jobs.
    samples.sort_by_key(|sample| {
        (
            sample.name.len() > MAX_NAME_BYTES,
            std::cmp::Reverse(sample.ready),
        )
    });
    let kept = samples
        .iter()
        .take(MAX_QUEUE_SAMPLES)
        .take_while(|sample| sample.name.len() <= MAX_NAME_BYTES)
        .count();
    let mut others = samples.split_off(kept);
    others.extend(summed);
    samples.sort_by(|left, right| left.name.cmp(&right.name));
    samples.extend((!others.is_empty()).then(|| sum_of(&others)));
    samples
}

/// Returns the sum of these samples, with the age of the oldest job.
fn sum_of(samples: &[QueueSample]) -> QueueSample {
    let mut sum = QueueSample {
        name: OVERFLOW_QUEUE.to_owned(),
        ..QueueSample::default()
    };
    for sample in samples {
        sum.ready += sample.ready;
        sum.running += sample.running;
        sum.age = sum.age.max(sample.age);
        sum.waiting_workers += sample.waiting_workers;
    }
    sum
}

/// Counters and samples of the workflow API.
#[derive(Debug, Default)]
pub struct ApiMetrics {
    counters: [AtomicU64; COUNTER_NAMES.len()],
    event_streams: AtomicU64,
    queues: Mutex<Vec<QueueSample>>,
    workflow_counts: Mutex<WorkflowCounts>,
    workflows_counted_at: Mutex<Option<Instant>>,
    /// Notified when a sample of the queues is needed.
    sample_requested: Notify,
    clock_skew: Mutex<Option<i64>>,
    attempt_counts: Mutex<Option<Arc<AttemptCounts>>>,
    risks: Mutex<Vec<String>>,
}

impl ApiMetrics {
    /// Adds `number` to the counter of an event.
    pub fn add(&self, event: CountedEvent, number: u64) {
        self.counters[event as usize].fetch_add(number, Relaxed);
    }

    /// Returns the counter of an event.
    pub(crate) fn get(&self, event: CountedEvent) -> u64 {
        self.counters[event as usize].load(Relaxed)
    }

    /// Returns the names and values of all counters.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        COUNTER_NAMES
            .into_iter()
            .zip(self.counters.iter().map(|counter| counter.load(Relaxed)))
    }

    /// Microseconds by which the clock of this machine is ahead of the store's. `None` if it is the
    /// store's clock.
    pub fn clock_skew(&self) -> Option<i64> {
        *lock(&self.clock_skew)
    }

    /// Sets the microseconds by which the clock of this machine is ahead of the store's.
    pub fn put_clock_skew(&self, skew: Option<i64>) {
        *lock(&self.clock_skew) = skew;
    }

    /// Reasons for which acknowledged work could be lost, one sentence each.
    pub fn risks(&self) -> Vec<String> {
        lock(&self.risks).clone()
    }

    /// Sets the reasons for which acknowledged work could be lost. Returns the new ones.
    pub fn put_risks(&self, risks: Vec<String>) -> Vec<String> {
        let mut current = lock(&self.risks);
        let new_risks = risks
            .iter()
            .filter(|risk| !current.contains(risk))
            .cloned()
            .collect();
        *current = risks;
        new_risks
    }

    /// Counts of the engine. `None` before there is an engine.
    pub fn attempt_counts(&self) -> Option<Arc<AttemptCounts>> {
        lock(&self.attempt_counts).clone()
    }

    /// Sets the counts of the engine.
    pub fn put_attempt_counts(&self, counts: Arc<AttemptCounts>) {
        *lock(&self.attempt_counts) = Some(counts);
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
        self.request_sample();
        lock(&self.queues).clone()
    }

    /// Requests a new sample of queues and workflows.
    pub(crate) fn request_sample(&self) {
        self.sample_requested.notify_one();
    }

    /// Returns the counts of workflows, a few seconds old.
    pub fn workflow_counts(&self) -> WorkflowCounts {
        lock(&self.workflow_counts).clone()
    }

    /// Returns the counts of workflows, if they were taken lately.
    pub(crate) fn recent_workflow_counts(&self) -> Option<WorkflowCounts> {
        let counted_at = (*lock(&self.workflows_counted_at))?;
        (counted_at.elapsed() < MAX_COUNTS_AGE).then(|| self.workflow_counts())
    }

    /// Sets the counts of workflows.
    pub fn put_workflow_counts(&self, counts: WorkflowCounts) {
        *lock(&self.workflow_counts) = counts;
        *lock(&self.workflows_counted_at) = Some(Instant::now());
    }

    /// Returns when a sample was requested since this returned last. Only one task at a time may
    /// wait.
    pub async fn sample_requested(&self) {
        self.sample_requested.notified().await;
    }

    /// Sets the samples of the queues. Clients name queues, so the number of samples is bounded.
    pub fn put_queues(&self, samples: Vec<QueueSample>) {
        let samples = bounded(samples);
        *lock(&self.queues) = samples;
    }
}

/// An open event stream.
pub(crate) struct OpenStream(Arc<ApiMetrics>);

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
    fn queues_above_the_maximum_are_summed() {
        let few = vec![sample("a", 1), sample("b", 2)];
        assert_eq!(bounded(few.clone()), few);
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        assert_eq!(
            bounded(vec![sample(&long, 3), sample("a", 1)]),
            [sample("a", 1), sample(OVERFLOW_QUEUE, 3)]
        );
        let many = (0..MAX_QUEUE_SAMPLES as u64 + 2)
            .map(|ready| sample(&format!("q{ready}"), ready))
            .collect();
        let kept = bounded(many);
        let sum = QueueSample {
            name: OVERFLOW_QUEUE.to_owned(),
            ready: 1,
            running: 2,
            age: 1,
            waiting_workers: 2,
        };
        assert_eq!(
            (kept.len(), kept.last()),
            (MAX_QUEUE_SAMPLES + 1, Some(&sum))
        );
    }
}
