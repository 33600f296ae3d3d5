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
use crate::figures::{Latency, RowFigures, Table, duration};
use crate::machine::{Cores, DelayedCluster};
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
#[derive(Clone)]
struct LoadCase {
    keys: usize,
    /// `None` is without proxies and without a schedule.
    one_way: Option<Duration>,
    callers: usize,
    /// Calls a second over all callers.
    rate: Option<f64>,
}

impl Scenario for Pipelines {
    fn name(&self) -> &'static str {
        "pipelines"
    }

    async fn measure(&self, options: &RunOptions) -> Result<Vec<Table>> {
        let cluster = DelayedCluster::start(PRIMARIES, Cores::Separate).await?;
        let mut cases = KEYS.map(|keys| self.scheduled(keys, self.one_way)).to_vec();
        cases.extend(FURTHER_DELAYS.map(|delay| self.scheduled(5, Duration::from_millis(delay))));
        let mut table = Table::new("pipelines", &["keys", "one way"]);
        for _ in options.rounds("pipelines") {
            for case in &cases {
                case.turn(options, &cluster, &mut table).await?;
            }
        }
        cluster.check()?;
        cluster.bypass_proxies().await?;
        let saturated = LoadCase {
            keys: 5,
            one_way: None,
            callers: self.callers,
            rate: None,
        };
        for _ in options.rounds("pipelines, saturated") {
            saturated.turn(options, &cluster, &mut table).await?;
        }
        Ok(vec![table])
    }
}

impl Pipelines {
    /// Returns a load with a schedule.
    fn scheduled(&self, keys: usize, one_way: Duration) -> LoadCase {
        LoadCase {
            keys,
            one_way: Some(one_way),
            callers: 1_024,
            rate: Some(self.rate),
        }
    }
}

impl LoadCase {
    /// Measures both designs and adds their row.
    async fn turn(
        &self,
        options: &RunOptions,
        cluster: &DelayedCluster,
        table: &mut Table,
    ) -> Result<()> {
        cluster.proxy.set_delay(self.one_way.unwrap_or_default());
        let one_way = self.one_way.map(|time| format!("{time:?}"));
        let mut row = table.row(&[&self.keys, &one_way.as_deref().unwrap_or("none")]);
        let serial = self.measure(Design::SerialByKey, options, cluster, &mut row);
        let serial = serial.await?;
        let parallel = self.measure(Design::ParallelByNode, options, cluster, &mut row);
        let parallel = parallel.await?;
        row.add("mean, times", 2, serial.mean_ms / parallel.mean_ms);
        row.add("p99, times", 2, serial.p99_ms / parallel.p99_ms);
        Ok(())
    }

    /// Measures one design and adds its figures to the row.
    async fn measure(
        &self,
        design: Design,
        options: &RunOptions,
        cluster: &DelayedCluster,
        row: &mut RowFigures<'_>,
    ) -> Result<Latency> {
        let load = EngineLoad {
            rate: self.rate,
            ..EngineLoad::new(cluster.config(), design, self.callers, options)
        };
        let tags = cluster.tags[..self.keys].to_vec();
        let key = |tag: &String| format!("{tag}{}", fastrand::u16(..1_000));
        let time = load.warmup + load.duration;
        let before = cluster.redis_time()?;
        let measured = load.run(move || tags.iter().map(key).collect()).await?;
        let busy = cluster.redis_time()? - before;
        let latency = measured.calls.latency()?;
        let name = design.name();
        latency.add_to(row, &format!(", {name}"));
        let share = 100.0 * busy.as_secs_f64() / time.as_secs_f64();
        row.add(&format!("Redis core %, {name}"), 0, share);
        row.add(
            &format!("commands/write, {name}"),
            1,
            measured.commands_per_write,
        );
        Ok(latency)
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
