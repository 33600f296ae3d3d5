//! Many callers, then few, on one client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tidegate_pipeline::{Arg, Batch, Client, Config};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use crate::engine::call;
use crate::tally::{Answer, Tally};

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
    pub(super) samples: Vec<(Duration, u64)>,
    pub(super) spike_time: Duration,
    pub(super) spike: Tally,
    pub(super) calm: Tally,
}

/// What the callers share.
struct Stage {
    client: Client,
    is_calm: Cell<bool>,
    spike: RefCell<Tally>,
    calm: RefCell<Tally>,
}

impl Spike {
    /// Runs on the current thread. Fails when a call failed.
    pub(super) async fn run(self) -> anyhow::Result<Seen> {
        let client = Client::new(self.config.clone())?;
        let (spike, calm) = (RefCell::new(Tally::new()), RefCell::new(Tally::new()));
        let stage = Rc::new(Stage { client, is_calm: Cell::new(false), spike, calm });
        LocalSet::new().run_until(self.drive(stage)).await
    }

    async fn drive(self, stage: Rc<Stage>) -> anyhow::Result<Seen> {
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for caller in 0..self.callers.max(self.calm_callers) {
            let stays = caller < self.calm_callers;
            tasks.spawn_local(stage.clone().call_again_and_again(stays));
        }
        let (mut samples, mut spike_time) = (Vec::new(), Duration::ZERO);
        while start.elapsed() < self.time + self.calm {
            sleep(SAMPLE).await;
            let now = start.elapsed();
            samples.push((now, stage.client.stats().connections));
            if now >= self.time && !stage.is_calm.replace(true) {
                spike_time = now;
            }
        }
        tasks.shutdown().await;
        stage.client.close().await;
        let (spike, calm) = (stage.spike.borrow().clone(), stage.calm.borrow().clone());
        ensure!(spike.failures() + calm.failures() == 0, "calls failed: {:?} {:?}", spike.errors, calm.errors);
        Ok(Seen { samples, spike_time, spike, calm })
    }
}

impl Stage {
    async fn call_again_and_again(self: Rc<Self>, stays: bool) {
        while stays || !self.is_calm.get() {
            let key = format!("spike{}", fastrand::u16(..1_000));
            let mut batch = Batch::with_capacity(1, 64);
            batch.unit().command("INCR", &[Arg::Key(key.as_bytes())]);
            let (start, began_calm) = (Instant::now(), self.is_calm.get());
            let answer = call(&self.client, batch).await;
            // A call of the spike's end counts there, whenever it returns.
            let tally = if began_calm { &self.calm } else { &self.spike };
            tally.borrow_mut().add(answer, start.elapsed());
            // A refusal returns at once: a caller that went on would keep the thread from whatever is to end it.
            if answer != Answer::Ok {
                return;
            }
        }
    }
}

impl Seen {
    pub(super) fn most_in_spike(&self) -> u64 {
        let spike = self.samples.iter().filter(|(at, _)| *at <= self.spike_time);
        spike.map(|(_, connections)| *connections).max().unwrap_or(0)
    }

    /// Connections at a time after the spike, or at the end if that comes first.
    pub(super) fn connections_after(&self, time: Duration) -> u64 {
        let at = self.samples.partition_point(|(at, _)| *at < self.spike_time + time);
        self.samples.get(at).or(self.samples.last()).map_or(0, |(_, connections)| *connections)
    }

    pub(super) fn spike_calls_per_second(&self) -> f64 {
        self.spike.decisions() as f64 / self.spike_time.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_at_the_time_asked_for() {
        let second = Duration::from_secs;
        let samples = vec![(second(1), 9), (second(2), 7), (second(3), 4), (second(4), 1)];
        let seen = Seen { samples, spike_time: second(2), spike: Tally::new(), calm: Tally::new() };
        assert_eq!(seen.most_in_spike(), 9);
        for (after, expected) in [(0, 7), (1, 4), (2, 1), (9, 1)] {
            assert_eq!(seen.connections_after(second(after)), expected, "after {after} s");
        }
    }
}
