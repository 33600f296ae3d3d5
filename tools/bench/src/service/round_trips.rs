//! `tidegate-bench round-trips`: the time of a call of many descriptors with Redis a millisecond
//! away.

use std::time::Duration;

use clap::Args;

use super::delayed_servers::DelayedServers;
use crate::delay::proxy_accuracy;
use crate::figures::{Table, duration};
use crate::load::{Load, Shape};
use crate::scenario::{RunOptions, Scenario};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct RoundTrips {
    /// Calls a second.
    #[arg(long, default_value_t = 800.0)]
    rate: f64,
    /// The delay of each direction.
    #[arg(long, default_value = "1ms", value_parser = duration)]
    one_way: Duration,
}

const DESCRIPTORS: [u16; 5] = [1, 2, 5, 10, 100];

impl Scenario for RoundTrips {
    fn name(&self) -> &'static str {
        "round-trips"
    }

    async fn measure(&self, options: &RunOptions) -> anyhow::Result<Vec<Table>> {
        let accuracy = proxy_accuracy()?;
        let far = DelayedServers::start(options, self.one_way).await?;
        let mut table = Table::new("round-trips", &["descriptors"]);
        for _ in options.rounds("round trips") {
            for descriptors in DESCRIPTORS {
                let mut row = table.row(&[&descriptors]);
                for (name, server) in &far.servers {
                    let shape = Shape::new("key", descriptors);
                    let load = Load {
                        rate: Some(self.rate),
                        warmup: options.warmup(),
                        ..Load::new(server.grpc(), shape, options.turn)
                    };
                    let latency = load.run(None).await?.calls.latency()?;
                    latency.add_to(&mut row, &format!(", {name}"));
                }
            }
        }
        far.cluster.check()?;
        Ok(vec![accuracy, table])
    }
}

/// Returns the row of the README: five descriptors.
pub(crate) fn summary(round_trips: &Table) -> [String; 3] {
    let mean = |name: &str| round_trips.median("5", &format!("mean ms, {name}"), "ms");
    let what = "mean time of a call with five descriptors, cluster 1 ms away each way";
    let serial = format!("{} with one node after the other", mean("serial"));
    [what.to_owned(), mean("parallel"), serial]
}
