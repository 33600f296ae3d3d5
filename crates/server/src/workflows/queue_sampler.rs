//! Samples queues and jobs while metrics are read. Each sample reads the largest queues and the
//! next page of all others, so its cost is bounded.

use std::time::Duration;

use hashbrown::HashMap;
use tidegate_api::{ApiMetrics, MAX_QUEUE_SAMPLES, OVERFLOW_QUEUE, QueueSample, WorkflowCounts};
use tidegate_workflow::{
    Cursor, Engine, Filter, JobState, Order, Query, QueueState, RunningCursor, RunningJobs, Status,
    Timestamp,
};
use tokio::time::sleep;

use super::clock::StoreClock;

/// Interval between two samples of queues and jobs.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Page size of the round over all queues.
const QUEUES_PER_PAGE: usize = 1_000;
/// Number of the largest queues that are read in each sample, if there is more than one page.
const MAX_LARGEST_QUEUES: usize = 250;
/// Limit of queues whose running jobs are counted separately.
const MAX_RUNNING_QUEUES: usize = 10_000;
/// Number of unfinished workflows in one read, for the numbers of their jobs.
const WORKFLOWS_PER_PAGE: usize = 1_000;

/// Samples until the future is dropped.
pub(super) async fn run(engine: &Engine, clock: &StoreClock, activity: &ApiMetrics) {
    let mut queues = QueueSampler::default();
    let mut jobs = JobSampler::default();
    let mut running = RunningSampler::default();
    loop {
        // The first reader gets numbers soon.
        activity.sample_requested().await;
        if let Ok(counts) = engine.count(&Filter::default()).await {
            let workflows = counts
                .found
                .into_iter()
                .map(|(status, number)| (status.word(), number))
                .collect();
            let jobs = jobs.sample(engine).await.unwrap_or_default();
            activity.put_workflow_counts(WorkflowCounts {
                workflows,
                jobs,
                home_partitions: engine.assigned_partition_count() as u64,
            });
        }
        running.sample(engine).await;
        if let Some(samples) = queues.sample(engine, clock, &running.last).await {
            activity.put_queues(samples);
        }
        sleep(SAMPLE_INTERVAL).await;
    }
}

/// Numbers of jobs by queue.
type JobsByQueue = HashMap<String, u64>;

/// Sum over many queues.
#[derive(Debug, Clone, Copy, Default)]
struct QueueTotals {
    ready: u64,
    oldest: Option<Timestamp>,
}

impl QueueTotals {
    fn add(&mut self, queue: &QueueState) {
        self.ready += queue.ready;
        self.oldest = self.oldest.into_iter().chain(queue.oldest).min();
    }
}

/// Sampler of queues.
#[derive(Debug, Default)]
struct QueueSampler {
    /// The largest queues.
    known: HashMap<String, QueueState>,
    /// Last queue of the previous page. None at the beginning of a round.
    after: Option<String>,
    /// Sums of all other queues, for the current round and the last full one.
    other_queues: QueueTotals,
    last_other_queues: QueueTotals,
}

impl QueueSampler {
    /// Reads the next page, and returns the samples. None if the store does not answer.
    async fn sample(
        &mut self,
        engine: &Engine,
        clock: &StoreClock,
        running: &JobsByQueue,
    ) -> Option<Vec<QueueSample>> {
        let page = engine
            .queue_page(self.after.as_deref(), QUEUES_PER_PAGE)
            .await
            .ok()?
            .found;
        if page.more || self.after.is_some() {
            let mut largest: Vec<&QueueState> = self
                .known
                .values()
                .filter(|queue| queue.ready > 0)
                .collect();
            largest.sort_unstable_by_key(|queue| std::cmp::Reverse(queue.ready));
            let names = largest
                .into_iter()
                .take(MAX_LARGEST_QUEUES)
                .map(|queue| queue.name.clone())
                .collect();
            self.known
                .extend(by_name(engine.queues_named(names).await.ok()?.found));
        }
        self.merge_page(page.queues, page.more);
        Some(self.samples(clock.now(), running))
    }

    /// Merges a page into the known queues.
    fn merge_page(&mut self, page: Vec<QueueState>, more: bool) {
        let after = self.after.take();
        let last = page.last().map(|queue| queue.name.clone());
        // Known queues in the range of this page that are not on it were removed.
        self.known.retain(|name, _| {
            let is_after = after.as_ref().is_none_or(|after| name > after);
            let is_before = !more || last.as_ref().is_none_or(|last| name <= last);
            !(is_after && is_before)
        });
        self.known.extend(by_name(page));
        self.forget_smallest();
        self.after = last.filter(|_| more);
        if !more {
            self.last_other_queues = std::mem::take(&mut self.other_queues);
        }
    }

    /// Moves the smallest queues above the maximum to the sums of all other queues.
    fn forget_smallest(&mut self) {
        let excess = self.known.len().saturating_sub(MAX_QUEUE_SAMPLES);
        if excess == 0 {
            return;
        }
        let sizes = self.known.iter();
        let mut sizes: Vec<(u64, String)> = sizes
            .map(|(name, queue)| (queue.ready, name.clone()))
            .collect();
        sizes.sort_unstable();
        for (_, name) in sizes.drain(..excess) {
            if let Some(queue) = self.known.remove(&name) {
                self.other_queues.add(&queue);
            }
        }
    }

    fn samples(&self, now: Timestamp, running: &JobsByQueue) -> Vec<QueueSample> {
        let sample = |queue: &QueueState| QueueSample {
            name: queue.name.clone(),
            ready: queue.ready,
            running: running.get(&queue.name).copied().unwrap_or_default(),
            age: age(queue.oldest, now),
            waiting_workers: queue.waiting_workers as u64,
        };
        let QueueTotals { ready, oldest } = self.last_other_queues;
        let running_there = running
            .iter()
            .filter(|(name, _)| !self.known.contains_key(*name))
            .map(|(_, number)| number)
            .sum();
        let others = QueueSample {
            name: OVERFLOW_QUEUE.to_owned(),
            ready,
            running: running_there,
            age: age(oldest, now),
            waiting_workers: 0,
        };
        self.known
            .values()
            .map(sample)
            .chain((ready + running_there > 0).then_some(others))
            .collect()
    }
}

/// Seconds since the oldest ready job of a queue. 0 if it has none.
fn age(oldest: Option<Timestamp>, now: Timestamp) -> u64 {
    oldest.map_or(0, |oldest| now.since(oldest).as_secs())
}

fn by_name(queues: Vec<QueueState>) -> impl Iterator<Item = (String, QueueState)> {
    queues.into_iter().map(|queue| (queue.name.clone(), queue))
}

/// Numbers of jobs by state.
type JobNumbers = [u64; JobState::WORDS.len()];

/// Sampler of jobs in unfinished workflows.
#[derive(Debug, Default)]
struct JobSampler {
    after: Option<Cursor>,
    /// Numbers for the current round, and for the last full one.
    numbers: JobNumbers,
    last: Option<JobNumbers>,
}

impl JobSampler {
    /// Numbers of the last full round. None if there is none yet, or if the store does not answer.
    async fn sample(&mut self, engine: &Engine) -> Option<Vec<(&'static str, u64)>> {
        let statuses = vec![Status::Pending, Status::Running, Status::Paused];
        let filter = Filter {
            statuses,
            ..Filter::default()
        };
        let query = Query {
            filter,
            order: Order::OldestFirst,
            limit: WORKFLOWS_PER_PAGE,
            after: self.after,
            ..Query::default()
        };
        let page = engine.list(&query).await.ok()?;
        for workflow in &page.items {
            self.numbers
                .iter_mut()
                .zip(workflow.meta.counts.entries())
                .for_each(|(sum, (_, number))| *sum += u64::from(number));
        }
        self.after = page.next;
        if self.after.is_none() {
            self.last = Some(std::mem::take(&mut self.numbers));
        }
        Some(JobState::WORDS.into_iter().zip(self.last?).collect())
    }
}

/// Sampler of running jobs, by queue.
#[derive(Debug, Default)]
struct RunningSampler {
    from: RunningCursor,
    /// Numbers for the current round, and for the last full one.
    numbers: JobsByQueue,
    last: JobsByQueue,
}

impl RunningSampler {
    /// Reads the next page. If the store does not answer, the last numbers stay.
    async fn sample(&mut self, engine: &Engine) {
        if let Ok(found) = engine.running_jobs(self.from.clone()).await {
            self.add_page(found);
        }
    }

    fn add_page(&mut self, RunningJobs { queues, next }: RunningJobs) {
        for (queue, number) in queues {
            // Clients choose the names of queues, so their number is limited.
            let room = self.numbers.len() < MAX_RUNNING_QUEUES || self.numbers.contains_key(&queue);
            *self
                .numbers
                .entry(if room {
                    queue
                } else {
                    OVERFLOW_QUEUE.to_owned()
                })
                .or_default() += number;
        }
        if next.is_none() {
            self.last = std::mem::take(&mut self.numbers);
        }
        self.from = next.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use tidegate_workflow::Paused;

    use super::*;

    fn queue(at: usize, ready: u64) -> QueueState {
        let oldest = (ready > 0).then(|| Timestamp::from_micros(1_000_000 * ready));
        QueueState {
            name: format!("q{at:05}"),
            paused: Paused::No,
            ready,
            oldest,
            waiting_workers: 0,
        }
    }

    #[test]
    fn many_queues_are_read_in_turn_and_the_smallest_are_summed() {
        let mut queues = QueueSampler::default();
        let mut turn = |ready: &dyn Fn(usize) -> u64| {
            for page in 0..5 {
                queues.merge_page(
                    (page * 1_000..(page + 1) * 1_000)
                        .map(|at| queue(at, ready(at)))
                        .collect(),
                    page < 4,
                );
            }
            queues.samples(Timestamp::from_micros(100_000_000), &JobsByQueue::default())
        };
        let samples = turn(&|at| if at % 1_000 == 7 { 50 } else { 1 });
        assert_eq!(samples.len(), MAX_QUEUE_SAMPLES + 1);
        assert_eq!(
            samples.iter().filter(|sample| sample.ready == 50).count(),
            5
        );
        assert_eq!(
            samples.iter().map(|sample| sample.ready).sum::<u64>(),
            5 * 50 + 4_995
        );
        assert_eq!(
            samples
                .iter()
                .find(|sample| sample.name == OVERFLOW_QUEUE)
                .unwrap()
                .age,
            99
        );
        let samples = turn(&|at| u64::from(at == 3));
        assert_eq!(samples.iter().map(|sample| sample.ready).sum::<u64>(), 1);
    }

    #[test]
    fn running_jobs_are_those_of_the_last_whole_turn_and_their_queues_are_bounded() {
        let mut running = RunningSampler::default();
        let some = |names: std::ops::Range<usize>, more: bool| {
            let queues = names.map(|at| (queue(at, 0).name, 2)).collect();
            RunningJobs {
                queues,
                next: more.then(RunningCursor::default),
            }
        };
        running.add_page(some(0..3, true));
        assert!(running.last.is_empty());
        running.add_page(some(2..MAX_RUNNING_QUEUES + 5, false));
        assert_eq!(
            (
                running.last["q00001"],
                running.last["q00002"],
                running.last[OVERFLOW_QUEUE]
            ),
            (2, 4, 10)
        );
        let mut queues = QueueSampler::default();
        queues.merge_page(vec![queue(2, 0)], false);
        let samples = queues.samples(Timestamp::from_micros(100_000_000), &running.last);
        let shown = |name: &str| {
            samples
                .iter()
                .find(|sample| sample.name == name)
                .unwrap()
                .running
        };
        assert_eq!(shown("q00002"), 4);
        assert_eq!(
            shown("q00002") + shown(OVERFLOW_QUEUE),
            running.last.values().sum::<u64>()
        );
        running.add_page(some(0..0, false));
        assert!(running.last.is_empty());
    }
}
