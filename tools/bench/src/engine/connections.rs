//! `tidegate-bench connections`: the number of connections that a spike opens, and that are left
//! after it.
//!
//! A random choice keeps every connection in use that was opened. A search that prefers the oldest
//! lets the others fall idle, and the idle timeout closes them. Both get the same capacity for each
//! connection.

mod spike;

use std::net::SocketAddr;
use std::num::NonZero;
use std::time::Duration;

use clap::Args;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Config, ConnectPace};

use crate::figures::{Table, duration};
use crate::machine::pin::{self, Core};
use crate::machine::tcp_address;
use crate::scenario::{RunOptions, Scenario};
use spike::Spike;

/// Arguments of the subcommand. A turn is the spike: a node opens one connection at a time, about
/// forty a second at ten milliseconds.
#[derive(Args)]
pub(crate) struct Connections {
    /// Callers of the spike.
    #[arg(long, default_value_t = 1_024)]
    callers: usize,
    /// Callers that stay.
    #[arg(long, default_value_t = 16)]
    calm_callers: usize,
    /// A connection closes after this time without a reply; the calm lasts two and a half times as
    /// long.
    #[arg(long, default_value = "2s", value_parser = duration)]
    idle_timeout: Duration,
    /// The delay of each direction. It must be long enough for a full connection to open another
    /// one.
    #[arg(long, default_value = "5ms", value_parser = duration)]
    one_way: Duration,
}

/// Maximum numbers of commands in flight on one connection, and of connections. The last pair are
/// the defaults; the others let the client open a connection for every caller.
const BOUNDS: [[usize; 2]; 3] = [[4, 1_024], [100, 1_024], [1_024, 4]];

/// Policies, by the number of oldest connections that are searched first; the others are chosen at
/// random.
const SEARCH_SPACES: [(&str, usize); 2] = [("random", 0), ("linear, 16", 16)];

impl Scenario for Connections {
    fn name(&self) -> &'static str {
        "connections"
    }

    async fn measure(&self, options: &RunOptions) -> anyhow::Result<Vec<Table>> {
        let redis = RedisServer::start().await;
        pin::process(redis.pid(), Core::Servers)?;
        let far = pin::proxies(&[([127, 0, 0, 1], redis.port()).into()], self.one_way)?;
        let labels = ["in flight, most", "connections, most", "policy"];
        let mut table = Table::new("connections", &labels);
        for _ in options.rounds("connections") {
            for [in_flight, connections] in BOUNDS {
                for (policy, space) in SEARCH_SPACES {
                    let mut config = self.config(far.addresses[0], space);
                    config.in_flight_commands = in_flight;
                    config.max_connections = connections;
                    let spike = Spike {
                        config,
                        callers: self.callers,
                        calm_callers: self.calm_callers,
                        time: options.turn,
                    };
                    let mut row = table.row(&[&in_flight, &connections, &policy]);
                    spike.run(&mut row).await?;
                }
            }
        }
        Ok(vec![table])
    }
}

impl Connections {
    fn config(&self, address: SocketAddr, space: usize) -> Config {
        let mut config = Config::single(tcp_address(address));
        config.search_space = space;
        config.idle_timeout = self.idle_timeout;
        config.connect_pace = ConnectPace::new(NonZero::<u32>::MAX, NonZero::<u32>::MAX);
        config
    }
}
