//! `tidegate-bench pipelines`: compares a batch for each key, in sequence, with one group for each
//! node, in parallel.
//!
//! The first is the older design: a round trip for each key of a call. The rows are those of
//! Envoy's PR 1149, which made that design parallel. Further delays show the distance from which
//! this matters.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::load::{Design, EngineLoad};
use crate::figures::{Latency, Table, duration};
use crate::machine::{Cores, FarCluster};
use crate::scenario::{RunOptions, Scenario};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Pipelines {
    /// The delay of each direction in the first rows, where the round trip is most of the time.
    #[arg(long, default_value = "10ms", value_parser = duration)]
    one_way: Duration,
    /// Calls a second in the rows with a schedule.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// Callers of the saturated row.
    #[arg(long, default_value_t = 256)]
    callers: usize,
}

/// Number of primaries: one for each key of the largest call. So each key has a separate owner, and
/// the ideal gain is the number of keys.
const PRIMARIES: usize = 5;
const KEYS: [usize; 3] = [1, 2, 5];
/// Further delays, in milliseconds each way, for the largest call.
const FURTHER_DELAYS: [u64; 3] = [0, 1, 5];

/// A load under which both designs are measured.
#[derive(Clone, Copy)]
struct Cell {
    keys: usize,
    /// `None` is without proxies and without a schedule.
    one_way: Option<Duration>,
}

impl Scenario for Pipelines {
    fn name(&self) -> &'static str {
        "pipelines"
    }

    async fn measure(&self, options: &RunOptions) -> Result<Vec<Table>> {
        let cluster = FarCluster::start(PRIMARIES, Cores::Separate).await?;
        let cell = |keys, one_way| Cell { keys, one_way };
        let mut cells = KEYS.map(|keys| cell(keys, Some(self.one_way))).to_vec();
        cells.extend(FURTHER_DELAYS.map(|delay| cell(5, Some(Duration::from_millis(delay)))));
        let mut table = Table::new("pipelines", &["keys", "one way"]);
        for _ in options.rounds("pipelines") {
            for cell in &cells {
                self.turn(options, *cell, &cluster, &mut table).await?;
            }
        }
        cluster.check()?;
        cluster.bypass_proxies().await?;
        for _ in options.rounds("pipelines, saturated") {
            self.turn(options, cell(5, None), &cluster, &mut table)
                .await?;
        }
        Ok(vec![table])
    }
}

impl Pipelines {
    async fn turn(
        &self,
        options: &RunOptions,
        cell: Cell,
        cluster: &FarCluster,
        table: &mut Table,
    ) -> Result<()> {
        cluster.proxy().set_delay(cell.one_way.unwrap_or_default());
        let one_way = cell.one_way.map(|time| format!("{time:?}"));
        let mut row = table.row(&[&cell.keys, &one_way.as_deref().unwrap_or("none")]);
        let mut latencies = Vec::new();
        for design in Design::ALL {
            let load = EngineLoad {
                config: cluster.config(),
                design,
                callers: cell.one_way.map_or(self.callers, |_| 1_024),
                rate: cell.one_way.map(|_| self.rate),
                warmup: options.warmup(),
                duration: options.turn,
            };
            let tags = cluster.tags()[..cell.keys].to_vec();
            let key = |tag: &String| format!("{tag}{}", fastrand::u16(..1_000));
            let (busy, time) = (cluster.redis_time()?, load.warmup + load.duration);
            let measured = load.run(move || tags.iter().map(key).collect()).await?;
            let busy = cluster.redis_time()? - busy;
            let latency = measured.calls.latency()?;
            let name = design.name();
            latency.add_to(&mut row, &format!(", {name}"));
            let share = 100.0 * busy.as_secs_f64() / time.as_secs_f64();
            row.add(&format!("Redis core %, {name}"), 0, [share]);
            let commands = measured.commands_per_write;
            row.add(&format!("commands/write, {name}"), 1, [commands]);
            latencies.push(latency);
        }
        let times = |figure: fn(&Latency) -> f64| figure(&latencies[0]) / figure(&latencies[1]);
        row.add("mean, times", 2, [times(|latency| latency.mean_ms)]);
        row.add("p99, times", 2, [times(|latency| latency.p99_ms)]);
        Ok(())
    }
}

impl Design {
    fn name(self) -> &'static str {
        match self {
            Self::SerialByKey => "serial by key",
            Self::ParallelByNode => "by node",
        }
    }
}
