//! What is counted of workflows, and what was seen of the queues when somebody last looked.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_workflow::AttemptCounts;
use tokio::sync::Notify;

/// Something that is counted.
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
    /// A request, or an item of it, failed because others had taken the room for it.
    Overloaded,
    /// A change was made again, because another server had changed the workflow.
    Conflict,
    /// A worker that waited was woken.
    WakeUp,
}

/// Names of the counters, in the order of [`Event`].
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

/// What a queue looked like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSample {
    /// Its name.
    pub name: String,
    /// Ready jobs.
    pub ready: u64,
    /// Jobs that run.
    pub running: u64,
    /// Seconds for which the oldest has been ready.
    pub age: u64,
    /// Workers that wait for a job of it.
    pub waiting_workers: u64,
}

/// What there was of workflows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Census {
    /// Workflows by status.
    pub workflows: Vec<(&'static str, u64)>,
    /// Jobs by state, of workflows that have not ended.
    pub jobs: Vec<(&'static str, u64)>,
    /// Partitions that are at home at this server.
    pub home_partitions: u64,
}

/// The most queues with a sample of their own: those with most ready jobs.
pub const MOST_QUEUES: usize = 1_000;
/// The most bytes of a queue's name in a sample.
const LONGEST_NAME: usize = 256;
/// The name of the sum of all other queues.
pub const OVERFLOW: &str = "_overflow";

fn bounded(samples: Vec<QueueSample>) -> Vec<QueueSample> {
    // What was summed already is no queue.
    let (summed, mut samples): (Vec<_>, Vec<_>) = samples
        .into_iter()
        .partition(|sample| sample.name == OVERFLOW);
    // Long names last, and then by ready jobs.
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

/// All counters of the workflows thread.
#[derive(Debug, Default)]
pub struct Activity {
    counters: [AtomicU64; NAMES.len()],
    event_streams: AtomicU64,
    queues: Mutex<Vec<QueueSample>>,
    census: Mutex<Census>,
    /// Notified when somebody looks at the queues.
    wanted: Notify,
    clock_skew: Mutex<Option<i64>>,
    tally: Mutex<Option<Arc<AttemptCounts>>>,
    risks: Mutex<Vec<String>>,
}

impl Activity {
    /// Activity `number` of these.
    pub fn add(&self, event: Event, number: u64) {
        self.counters[event as usize].fetch_add(number, Relaxed);
    }

    /// How much of this there was.
    pub(crate) fn get(&self, event: Event) -> u64 {
        self.counters[event as usize].load(Relaxed)
    }

    /// Names and values of all counters.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES
            .into_iter()
            .zip(self.counters.iter().map(|counter| counter.load(Relaxed)))
    }

    /// How far the clock of this machine is ahead of the store's, in microseconds; None where it is the store's.
    pub fn clock_skew(&self) -> Option<i64> {
        *self
            .clock_skew
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps how far the clock of this machine is ahead of the store's, in microseconds.
    pub fn put_clock_skew(&self, skew: Option<i64>) {
        *self
            .clock_skew
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = skew;
    }

    /// By what acknowledged work could be lost, a sentence each.
    pub fn risks(&self) -> Vec<String> {
        self.risks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps by what acknowledged work could be lost. Returns what was not known.
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

    /// What the engine counts, as soon as there is one.
    pub fn tally(&self) -> Option<Arc<AttemptCounts>> {
        self.tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps where the engine counts.
    pub fn put_tally(&self, tally: Arc<AttemptCounts>) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = Some(tally);
    }

    /// How many event streams are open.
    pub fn event_streams(&self) -> u64 {
        self.event_streams.load(Relaxed)
    }

    /// Counts an event stream until the result is dropped.
    pub(crate) fn open_stream(self: &Arc<Self>) -> OpenStream {
        self.event_streams.fetch_add(1, Relaxed);
        OpenStream(self.clone())
    }

    /// The queues as they were a few seconds ago; and they will be looked at again soon.
    pub fn queues(&self) -> Vec<QueueSample> {
        self.look();
        self.queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Queues and workflows will be looked at again soon.
    pub(crate) fn look(&self) {
        self.wanted.notify_one();
    }

    /// What there was of workflows a few seconds ago.
    pub fn census(&self) -> Census {
        self.census
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps what there is of workflows.
    pub fn put_census(&self, census: Census) {
        *self.census.lock().unwrap_or_else(PoisonError::into_inner) = census;
    }

    /// Returns when somebody has looked at the queues since this returned last. Only one task at a time may wait.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Keeps what was seen of the queues. Clients name them, so only so many have a sample of their own.
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
