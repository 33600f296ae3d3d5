//! Many callers, then few, on one client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use tidegate_pipeline::{Arg, Batch, Client, Config, Stats};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use crate::engine::call;
use crate::figures::{Answer, Tally, micros};

/// How often connections are counted; a fraction of any idle timeout.
const SAMPLE: Duration = Duration::from_millis(50);

/// Callers that never pause: many for a time, and few afterwards.
pub(super) struct Spike {
    pub(super) config: Config,
    pub(super) callers: usize,
    pub(super) calm_callers: usize,
    pub(super) time: Duration,
    pub(super) calm: Duration,
}

/// What was seen meanwhile.
pub(super) struct Seen {
    /// Time since the beginning, and open connections then.
    samples: Vec<(Duration, u64)>,
    spike_time: Duration,
    /// The first half of the spike, while connections open.
    onset: Part,
    /// Its second half.
    spike: Part,
    calm: Part,
}

/// What a turn showed.
#[derive(Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) connections_in_spike: u64,
    /// Half an idle timeout after the spike, a whole one, and so on.
    pub(super) connections_after: [u64; 5],
    pub(super) onset: Calls,
    pub(super) spike: Calls,
    pub(super) calm: Calls,
}

/// What a part of a turn showed of calls.
#[derive(Serialize, Deserialize)]
pub(super) struct Calls {
    pub(super) p99_ms: f64,
    pub(super) calls_per_second: f64,
    pub(super) calls_per_write: f64,
}

/// What was seen in one part.
struct Part {
    tally: Tally,
    time: Duration,
    calls_per_write: f64,
}

/// The parts, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Onset,
    Spike,
    Calm,
}

/// What the callers share.
struct Stage {
    client: Client,
    phase: Cell<Phase>,
    tallies: [RefCell<Tally>; 3],
}

impl Spike {
    /// Runs on the current thread. Fails when a call failed.
    pub(super) async fn run(self) -> anyhow::Result<Seen> {
        let client = Client::new(self.config.clone())?;
        let tallies = std::array::from_fn(|_| RefCell::new(Tally::new()));
        let stage = Rc::new(Stage {
            client,
            phase: Cell::new(Phase::Onset),
            tallies,
        });
        LocalSet::new().run_until(self.drive(stage)).await
    }

    async fn drive(self, stage: Rc<Stage>) -> anyhow::Result<Seen> {
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for caller in 0..self.callers.max(self.calm_callers) {
            let stays = caller < self.calm_callers;
            tasks.spawn_local(stage.clone().call_again_and_again(stays));
        }
        let mut samples = Vec::new();
        let mut ends = vec![(start, stage.client.stats())];
        for (phase, end) in [
            (Phase::Onset, self.time / 2),
            (Phase::Spike, self.time),
            (Phase::Calm, self.time + self.calm),
        ] {
            stage.phase.set(phase);
            while start.elapsed() < end {
                sleep(SAMPLE).await;
                samples.push((start.elapsed(), stage.client.stats().connections));
            }
            ends.push((Instant::now(), stage.client.stats()));
        }
        tasks.shutdown().await;
        stage.client.close().await;
        let [onset, spike, calm] = stage.parts(&ends);
        let seen = Seen {
            samples,
            spike_time: ends[2].0 - start,
            onset,
            spike,
            calm,
        };
        for part in [&seen.onset, &seen.spike, &seen.calm] {
            ensure!(
                part.tally.failures() == 0,
                "calls failed: {:?}",
                part.tally.errors
            );
        }
        Ok(seen)
    }
}

impl Stage {
    /// What each phase showed, from the moments and totals at its ends.
    fn parts(&self, ends: &[(Instant, Stats)]) -> [Part; 3] {
        std::array::from_fn(|phase| {
            let ((from, before), (to, after)) = (&ends[phase], &ends[phase + 1]);
            let writes = (after.writes - before.writes).max(1);
            let calls_per_write = (after.commands - before.commands) as f64 / writes as f64;
            Part {
                tally: self.tallies[phase].borrow().clone(),
                time: *to - *from,
                calls_per_write,
            }
        })
    }

    async fn call_again_and_again(self: Rc<Self>, stays: bool) {
        while stays || self.phase.get() != Phase::Calm {
            let key = format!("spike{}", fastrand::u16(..1_000));
            let mut batch = Batch::with_capacity(1, 64);
            batch.unit().command("INCR", &[Arg::Key(key.as_bytes())]);
            let (start, phase) = (Instant::now(), self.phase.get());
            let answer = call(&self.client, vec![batch]).await;
            // A call counts where it began, whenever it returns.
            self.tallies[phase as usize]
                .borrow_mut()
                .add(answer, start.elapsed());
            // A refusal returns at once: a caller that went on would keep the thread from whatever is to end it.
            if answer != Answer::Ok {
                return;
            }
        }
    }
}

impl Seen {
    pub(super) fn turn(&self, idle_timeout: Duration) -> Turn {
        Turn {
            connections_in_spike: self.most_in_spike(),
            connections_after: [1, 2, 3, 4, 5]
                .map(|half| self.connections_after(idle_timeout * half / 2)),
            onset: self.onset.calls(),
            spike: self.spike.calls(),
            calm: self.calm.calls(),
        }
    }

    fn most_in_spike(&self) -> u64 {
        let spike = self.samples.iter().filter(|(at, _)| *at <= self.spike_time);
        spike
            .map(|(_, connections)| *connections)
            .max()
            .unwrap_or(0)
    }

    /// Connections at a time after the spike, or at the end if that comes first.
    fn connections_after(&self, time: Duration) -> u64 {
        let at = self
            .samples
            .partition_point(|(at, _)| *at < self.spike_time + time);
        self.samples
            .get(at)
            .or(self.samples.last())
            .map_or(0, |(_, connections)| *connections)
    }
}

impl Part {
    fn calls(&self) -> Calls {
        Calls {
            p99_ms: micros(self.tally.percentile(99.0)) / 1_000.0,
            calls_per_second: self.tally.decisions() as f64 / self.time.as_secs_f64(),
            calls_per_write: self.calls_per_write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_at_the_time_asked_for() {
        let second = Duration::from_secs;
        let samples = vec![
            (second(1), 9),
            (second(2), 7),
            (second(3), 4),
            (second(4), 1),
        ];
        let part = || Part {
            tally: Tally::new(),
            time: second(1),
            calls_per_write: 1.0,
        };
        let seen = Seen {
            samples,
            spike_time: second(2),
            onset: part(),
            spike: part(),
            calm: part(),
        };
        assert_eq!(seen.most_in_spike(), 9);
        for (after, expected) in [(0, 7), (1, 4), (2, 1), (9, 1)] {
            assert_eq!(
                seen.connections_after(second(after)),
                expected,
                "after {after} s"
            );
        }
    }
}
