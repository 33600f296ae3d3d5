//! Times of calls over several turns of a variant.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::spread::Spread;
use super::tally::{Tally, micros};

/// What every turn of a variant showed.
#[derive(Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Latency {
    turns: Vec<Turn>,
}

#[derive(Serialize, Deserialize)]
struct Turn {
    per_second: f64,
    mean_ms: f64,
    p99_ms: f64,
}

impl Latency {
    /// Adds a turn. Fails when a call failed, or when calls were left behind: the others then say nothing.
    pub(crate) fn add(
        &mut self,
        tally: &Tally,
        elapsed: Duration,
        behind: u64,
    ) -> anyhow::Result<()> {
        ensure!(tally.failures() == 0, "calls failed: {:?}", tally.errors);
        ensure!(tally.decisions() > 0, "no call was answered");
        // A few are always just due.
        ensure!(
            behind * 20 < tally.decisions().max(200),
            "{behind} calls were due and not sent"
        );
        self.turns.push(Turn {
            per_second: tally.decisions() as f64 / elapsed.as_secs_f64(),
            mean_ms: micros(tally.mean()) / 1_000.0,
            p99_ms: micros(tally.percentile(99.0)) / 1_000.0,
        });
        Ok(())
    }

    pub(crate) fn per_second(&self) -> Spread {
        self.spread(|turn| turn.per_second)
    }

    pub(crate) fn mean_ms(&self) -> Spread {
        self.spread(|turn| turn.mean_ms)
    }

    pub(crate) fn p99_ms(&self) -> Spread {
        self.spread(|turn| turn.p99_ms)
    }

    fn spread(&self, figure: impl Fn(&Turn) -> f64) -> Spread {
        let none = Spread {
            least: f64::NAN,
            median: f64::NAN,
            most: f64::NAN,
        };
        Spread::new(self.turns.iter().map(figure).collect()).unwrap_or(none)
    }
}
