//! `tidegate-bench pipelines`: one group for each key, one after the other, against one for each node, all at once.
//!
//! The first is what the older design does: a round trip for each key of a call. The cells are those of Envoy's PR 1149, which made
//! that design parallel; further delays show from which distance on it matters.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tidegate_pipeline::{Arg, Batch};

use crate::delay::Accuracy;
use crate::engine::load::Load;
use crate::figures::{self, Latency, Sheet, Spread, Table, Turns, finish, spread};
use crate::machine::{Cores, FarCluster};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// The delay of each direction in the first cells, where the round trip is most of the time.
    #[arg(long, default_value = "10ms", value_parser = crate::figures::duration)]
    one_way: Duration,
    /// Calls a second in the cells with a schedule.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// Callers of the saturated cell.
    #[arg(long, default_value_t = 256)]
    callers: usize,
}

/// One for each key of the largest call. So each key has an owner of its own, and the ideal gain is the number of keys.
const PRIMARIES: usize = 5;
const KEYS: [usize; 3] = [1, 2, 5];
/// Further delays, in milliseconds each way, for the largest call.
const CURVE: [u64; 3] = [0, 1, 5];

/// How a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    SerialByKey,
    ParallelByNode,
}

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    proxy: Accuracy,
    cells: Vec<Cell>,
}

/// Both designs under the same load.
#[derive(Serialize, Deserialize)]
struct Cell {
    keys: usize,
    /// `None` is without proxies and without a schedule.
    one_way: Option<Duration>,
    serial_by_key: Side,
    parallel_by_node: Side,
}

/// What one design showed in each turn.
#[derive(Default, Serialize, Deserialize)]
struct Side {
    latency: Latency,
    /// Share of a core that the nodes took.
    redis_core: Vec<f64>,
    commands_per_write: Vec<f64>,
}

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let proxy = Accuracy::measure()?;
    let cluster = FarCluster::start(PRIMARIES, Cores::Apart).await?;
    let mut cells: Vec<Cell> = KEYS
        .iter()
        .map(|&keys| Cell::new(keys, Some(arguments.one_way)))
        .collect();
    cells.extend(CURVE.map(|millis| Cell::new(PRIMARIES, Some(Duration::from_millis(millis)))));
    let mut saturated = vec![Cell::new(PRIMARIES, None)];
    measure(&mut cells, &cluster, &arguments).await?;
    cluster.check()?;
    cluster.bypass_proxies().await?;
    measure(&mut saturated, &cluster, &arguments).await?;
    cells.append(&mut saturated);
    finish(&Results { proxy, cells }, &arguments.turns.results)
}

impl figures::Results for Results {
    const NAME: &str = "pipelines";

    fn tables(&self) -> Vec<Table> {
        vec![Table::new("pipelines", sheet(&self.cells))]
    }
}

async fn measure(
    cells: &mut [Cell],
    cluster: &FarCluster,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    for round in 1..=arguments.turns.rounds {
        eprintln!("round {round} of {}", arguments.turns.rounds);
        for cell in &mut *cells {
            for design in [Design::SerialByKey, Design::ParallelByNode] {
                cell.turn(design, cluster, arguments).await?;
            }
        }
    }
    Ok(())
}

impl Cell {
    fn new(keys: usize, one_way: Option<Duration>) -> Self {
        Self {
            keys,
            one_way,
            serial_by_key: Side::default(),
            parallel_by_node: Side::default(),
        }
    }

    async fn turn(
        &mut self,
        design: Design,
        cluster: &FarCluster,
        arguments: &Arguments,
    ) -> anyhow::Result<()> {
        cluster.proxy().set_delay(self.one_way.unwrap_or_default());
        let saturated = self.one_way.is_none();
        let load = Load {
            config: cluster.config(),
            callers: if saturated { arguments.callers } else { 1_024 },
            rate: (!saturated).then_some(arguments.rate),
            warmup: arguments.turns.warmup(),
            duration: arguments.turns.turn,
        };
        let tags: Vec<String> = cluster.tags()[..self.keys].to_vec();
        let busy = cluster.redis_time()?;
        let time = load.warmup + load.duration;
        let measured = load.run(move || design.batches(&tags)).await?;
        let side = match design {
            Design::SerialByKey => &mut self.serial_by_key,
            Design::ParallelByNode => &mut self.parallel_by_node,
        };
        side.redis_core
            .push((cluster.redis_time()? - busy).as_secs_f64() / time.as_secs_f64());
        side.commands_per_write.push(measured.commands_per_write());
        side.latency
            .add(&measured.tally, measured.elapsed, measured.behind)
    }
}

impl Design {
    /// What a call sends, one after the other.
    fn batches(self, tags: &[String]) -> Vec<Batch> {
        match self {
            Self::SerialByKey => tags.chunks(1).map(counters).collect(),
            Self::ParallelByNode => vec![counters(tags)],
        }
    }
}

/// A counter for each tag, with its expiry, as a rate limiter counts.
fn counters(tags: &[String]) -> Batch {
    let mut batch = Batch::with_capacity(tags.len() * 2, tags.len() * 128);
    for tag in tags {
        let key = format!("{tag}{}", fastrand::u16(..1_000));
        let key = Arg::Key(key.as_bytes());
        batch
            .unit()
            .command("INCRBY", &[key, Arg::Integer(1)])
            .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
    }
    batch
}

fn sheet(cells: &[Cell]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "keys",
        "one way",
        "calls/s, serial by key",
        "by node",
        "mean ms, serial by key",
        "by node",
        "times",
        "p99 ms, serial by key",
        "by node",
        "times",
        "Redis core %, serial by key",
        "by node",
        "commands/write, serial by key",
        "by node",
    ]);
    for cell in cells {
        let sides = [&cell.serial_by_key, &cell.parallel_by_node];
        let [rates, means, p99s] = [Latency::per_second, Latency::mean_ms, Latency::p99_ms]
            .map(|figure| sides.map(|side| figure(&side.latency)));
        let times =
            |[serial, parallel]: [Spread; 2]| format!("{:.2}", serial.median / parallel.median);
        let mut cells = vec![
            cell.keys.to_string(),
            cell.one_way
                .map_or("none".into(), |time| format!("{time:?}")),
        ];
        cells.extend(rates.map(|rate| format!("{rate:.0}")));
        cells.extend(means.map(|mean| format!("{mean:.2}")));
        cells.push(times(means));
        cells.extend(p99s.map(|p99| format!("{p99:.2}")));
        cells.push(times(p99s));
        cells
            .extend(sides.map(|side| spread(side.redis_core.iter().map(|share| share * 100.0), 0)));
        cells.extend(sides.map(|side| spread(side.commands_per_write.iter().copied(), 1)));
        sheet.row(cells);
    }
    sheet
}
