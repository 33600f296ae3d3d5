//! `tidegate-bench callers`: the rate of calls of ten keys with a fixed number of callers.
//!
//! In a closed loop the mean time follows from the rate; the 99th percentile does not.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::delayed_servers::DelayedServers;
use crate::engine::{Design, EngineLoad};
use crate::figures::{Calls, Table, duration};
use crate::load::{Load, Shape};
use crate::machine::{DelayedCluster, Server};
use crate::scenario::{RunOptions, Scenario};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Callers {
    /// The delay of each direction.
    #[arg(long, default_value = "1ms", value_parser = duration)]
    one_way: Duration,
}

const KEYS: u16 = 10;
/// Numbers of connections, each with as many callers.
const CONNECTIONS: [u16; 2] = [8, 10];

/// A sender of calls to Redis.
enum CallSource<'a> {
    Service(&'a Server),
    /// The engine alone, in the load's own process.
    Engine(Design),
}

impl Scenario for Callers {
    fn name(&self) -> &'static str {
        "callers"
    }

    async fn measure(&self, options: &RunOptions) -> Result<Vec<Table>> {
        let far = DelayedServers::start(options, self.one_way).await?;
        let variants = variants(&far.servers);
        let mut table = Table::new("callers", &["callers", "variant"]);
        for _ in options.rounds("callers") {
            for connections in CONNECTIONS {
                for (name, variant) in &variants {
                    let calls = turn(options, variant, connections, &far.cluster).await?;
                    let callers = connections * connections;
                    calls
                        .latency()?
                        .add_to(&mut table.row(&[&callers, name]), "");
                }
            }
        }
        far.cluster.check()?;
        Ok(vec![table])
    }
}

/// Returns the senders with their names.
fn variants<'a>(servers: &'a [(&str, Server)]) -> Vec<(String, CallSource<'a>)> {
    let service = |name| format!("service, {name}");
    let services = servers.iter();
    let services = services.map(|(name, server)| (service(name), CallSource::Service(server)));
    // Nearly all keys of a call are in different slots.
    let engines = [
        ("engine, serial by slot", Design::SerialByKey),
        ("engine, parallel by node", Design::ParallelByNode),
    ];
    let engines = engines.map(|(name, design)| (name.to_owned(), CallSource::Engine(design)));
    services.chain(engines).collect()
}

async fn turn(
    options: &RunOptions,
    variant: &CallSource<'_>,
    connections: u16,
    cluster: &DelayedCluster,
) -> Result<Calls> {
    match variant {
        CallSource::Service(server) => {
            let load = Load {
                connections,
                streams: connections,
                warmup: options.warmup(),
                ..Load::new(server.grpc(), Shape::new("key", KEYS), options.turn)
            };
            Ok(load.run(None).await?.calls)
        }
        CallSource::Engine(design) => {
            let callers = usize::from(connections) * usize::from(connections);
            let load = EngineLoad::new(cluster.config(), *design, callers, options);
            let key = |at| format!("bench_key_{at}_{}", fastrand::u16(..1_000));
            Ok(load.run(move || (0..KEYS).map(key).collect()).await?.calls)
        }
    }
}
