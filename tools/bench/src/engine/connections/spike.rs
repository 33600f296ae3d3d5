//! Many callers, then few, on one client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_pipeline::{Arg, Batch, Client, Config, Stats};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use crate::engine::load::send;
use crate::figures::{Answer, AnswerCounts, Calls, RowFigures};

/// Interval of counting connections: a fraction of any idle timeout.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Callers that never pause: many for a time, and few afterwards.
pub(super) struct Spike {
    pub(super) config: Config,
    pub(super) callers: usize,
    pub(super) calm_callers: usize,
    /// Length of the spike. The calm after it lasts two and a half times the idle timeout of the
    /// client.
    pub(super) time: Duration,
}

/// Numbers of open connections, with the time since the beginning.
struct ConnectionSamples {
    samples: Vec<(Duration, u64)>,
    spike_time: Duration,
}

/// Names of the phases: the first half of the spike, while connections open; its second half; and
/// the time after it.
const PHASES: [&str; 3] = ["onset", "spike", "calm"];
const CALM_PHASE: usize = 2;

/// State that the callers share.
struct SpikeState {
    client: Client,
    /// Index into [`PHASES`].
    phase: Cell<usize>,
    answers: [RefCell<AnswerCounts>; 3],
}

/// Totals of the client at one time.
struct ClientTotals {
    at: Instant,
    stats: Stats,
}

impl Spike {
    /// Runs on the current thread, and adds the figures to a row. Fails if a call failed.
    pub(super) async fn run(self, row: &mut RowFigures<'_>) -> Result<()> {
        let stage = Rc::new(SpikeState {
            client: Client::new(self.config.clone())?,
            phase: Cell::new(0),
            answers: std::array::from_fn(|_| RefCell::new(AnswerCounts::new())),
        });
        LocalSet::new().run_until(self.drive(stage, row)).await
    }

    async fn drive(self, stage: Rc<SpikeState>, row: &mut RowFigures<'_>) -> Result<()> {
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for caller in 0..self.callers.max(self.calm_callers) {
            let until = (caller >= self.calm_callers).then_some(CALM_PHASE);
            tasks.spawn_local(stage.clone().call_until(until));
        }
        let (mut samples, mut ends) = (Vec::new(), vec![stage.totals()]);
        let calm = self.config.idle_timeout * 5 / 2;
        let phases = [self.time / 2, self.time, self.time + calm];
        for (phase, end) in phases.into_iter().enumerate() {
            stage.phase.set(phase);
            stage.sample_until(start, end, &mut samples).await;
            ends.push(stage.totals());
        }
        tasks.shutdown().await;
        stage.client.close().await;
        let spike_time = ends[CALM_PHASE].at - start;
        let samples = ConnectionSamples {
            samples,
            spike_time,
        };
        samples.add_to(row, self.config.idle_timeout);
        stage.add_to(row, &ends)
    }
}

impl SpikeState {
    /// Adds numbers of connections until a time after `start`.
    async fn sample_until(
        &self,
        start: Instant,
        end: Duration,
        samples: &mut Vec<(Duration, u64)>,
    ) {
        while start.elapsed() < end {
            sleep(SAMPLE_INTERVAL).await;
            samples.push((start.elapsed(), self.client.stats().connections));
        }
    }

    fn totals(&self) -> ClientTotals {
        ClientTotals {
            at: Instant::now(),
            stats: self.client.stats(),
        }
    }

    /// Adds the figures of each phase, from the totals at its ends.
    fn add_to(&self, row: &mut RowFigures<'_>, ends: &[ClientTotals]) -> Result<()> {
        for ((phase, ends), answers) in PHASES.iter().zip(ends.windows(2)).zip(&self.answers) {
            let calls = Calls {
                answers: answers.borrow().clone(),
                elapsed: ends[1].at - ends[0].at,
                behind: 0,
            };
            let latency = calls.latency()?;
            row.add(&format!("p99 ms, {phase}"), 1, latency.p99_ms);
            row.add(&format!("calls/s, {phase}"), 0, latency.per_second);
            let (before, after) = (&ends[0].stats, &ends[1].stats);
            let writes = (after.writes - before.writes).max(1) as f64;
            let calls = (after.commands - before.commands) as f64;
            row.add(&format!("calls/write, {phase}"), 1, calls / writes);
        }
        Ok(())
    }

    /// Calls repeatedly, until a phase begins or a call fails.
    async fn call_until(self: Rc<Self>, end: Option<usize>) {
        while end != Some(self.phase.get()) {
            let key = format!("spike{}", fastrand::u16(..1_000));
            let mut batch = Batch::with_capacity(1, 64);
            batch.unit().command("INCR", &[Arg::Key(key.as_bytes())]);
            let (start, phase) = (Instant::now(), self.phase.get());
            let answer = send(&self.client, batch).await;
            // A call counts in the phase in which it began.
            let counts = &self.answers[phase];
            counts.borrow_mut().add(answer, start.elapsed());
            // A refusal returns at once: a caller that continued would starve the task that ends
            // it.
            if answer != Answer::Ok {
                return;
            }
        }
    }
}

impl ConnectionSamples {
    fn add_to(&self, row: &mut RowFigures<'_>, idle_timeout: Duration) {
        let max = self.max_in_spike() as f64;
        row.add("connections in the spike", 0, max);
        for (half, name) in [(1, "1/2"), (2, "1"), (3, "1 1/2"), (4, "2"), (5, "2 1/2")] {
            let connections = self.connections_after(idle_timeout * half / 2) as f64;
            row.add(&format!("after {name} idle"), 0, connections);
        }
    }

    fn max_in_spike(&self) -> u64 {
        let spike = self.samples.iter().filter(|(at, _)| *at <= self.spike_time);
        spike
            .map(|(_, connections)| *connections)
            .max()
            .unwrap_or(0)
    }

    /// Returns the number of connections at a time after the spike, or at the end if that is
    /// earlier.
    fn connections_after(&self, time: Duration) -> u64 {
        let time = self.spike_time + time;
        let at = self.samples.partition_point(|(at, _)| *at < time);
        let sample = self.samples.get(at).or(self.samples.last());
        sample.map_or(0, |(_, connections)| *connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_at_a_time_after_the_spike() {
        let second = Duration::from_secs;
        let samples = [(1, 9), (2, 7), (3, 4), (4, 1)];
        let samples = ConnectionSamples {
            samples: samples
                .map(|(at, connections)| (second(at), connections))
                .to_vec(),
            spike_time: second(2),
        };
        assert_eq!(samples.max_in_spike(), 9);
        for (after, expected) in [(0, 7), (1, 4), (2, 1), (9, 1)] {
            let found = samples.connections_after(second(after));
            assert_eq!(found, expected, "after {after} s");
        }
    }
}
