//! `tidegate-bench connections`: how many connections a spike opens, and how many are left when it is over.
//!
//! A policy that spreads load keeps every connection in use that it opened. One that prefers the oldest lets the others
//! fall idle, and the idle timeout closes them. All policies get the same capacity for each connection.

mod spike;

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Address, Config, ConnectPace};

use crate::delay::{Accuracy, DelayProxy};
use crate::figures::{self, Sheet, Table, finish, spread};
use crate::machine::pin::{self, Core};
use spike::{Spike, Turn};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Callers of the spike.
    #[arg(long, default_value_t = 1_024)]
    callers: usize,
    /// Callers that stay.
    #[arg(long, default_value_t = 16)]
    calm_callers: usize,
    /// Turns of each policy; the table shows medians with the least and the most.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Length of the spike. A node opens one connection at a time, about forty a second at ten milliseconds.
    #[arg(long, default_value = "4s", value_parser = crate::figures::duration)]
    turn: Duration,
    /// A connection closes after this time without a reply; the calm lasts two and a half times as long.
    #[arg(long, default_value = "2s", value_parser = crate::figures::duration)]
    idle_timeout: Duration,
    /// The delay of each direction. It must be long enough for a full connection to open another one.
    #[arg(long, default_value = "5ms", value_parser = crate::figures::duration)]
    one_way: Duration,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

/// Commands in flight on one connection, and connections, at most. The last is the default; the others leave the policy
/// free to open one for every caller.
const BOUNDS: [(usize, usize); 3] = [(4, 1_024), (100, 1_024), (1_024, 4)];

/// How many of the oldest connections are searched in order.
const POLICIES: [(&str, usize); 2] = [("random", 0), ("linear, 16", 16)];

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    proxy: Accuracy,
    rows: Vec<Row>,
}

/// A policy within bounds, and what it did.
#[derive(Serialize, Deserialize)]
struct Row {
    policy: String,
    in_flight_commands: usize,
    max_connections: usize,
    turns: Vec<Turn>,
}

/// Measures, prints the table and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let proxy = Accuracy::measure()?;
    let redis = RedisServer::start().await;
    pin::process(redis.pid(), Core::Servers)?;
    pin::current_thread(Core::Servers)?;
    let far = DelayProxy::start(&[([127, 0, 0, 1], redis.port()).into()], arguments.one_way)?;
    pin::current_thread(Core::Load)?;
    let all = || {
        BOUNDS
            .into_iter()
            .flat_map(|bounds| POLICIES.map(|policy| (bounds, policy)))
    };
    let mut rows: Vec<Row> = all()
        .map(|(bounds, (policy, _))| Row::new(policy, bounds))
        .collect();
    for round in 1..=arguments.rounds {
        for (row, (_, (policy, search_space))) in rows.iter_mut().zip(all()) {
            eprintln!(
                "round {round} of {}: {policy}, at most {} in flight",
                arguments.rounds, row.in_flight_commands
            );
            let config = row.config(far.addresses()[0], search_space, arguments.idle_timeout);
            let spike = Spike {
                config,
                callers: arguments.callers,
                calm_callers: arguments.calm_callers,
                time: arguments.turn,
                calm: arguments.idle_timeout * 5 / 2,
            };
            row.turns
                .push(spike.run().await?.turn(arguments.idle_timeout));
        }
    }
    finish(&Results { proxy, rows }, &arguments.results)
}

impl Row {
    fn new(policy: &str, (in_flight_commands, max_connections): (usize, usize)) -> Self {
        Self {
            policy: policy.to_owned(),
            in_flight_commands,
            max_connections,
            turns: Vec::new(),
        }
    }

    fn config(&self, address: SocketAddr, search_space: usize, idle_timeout: Duration) -> Config {
        let mut config = Config::single(Address::Tcp {
            host: address.ip().to_string(),
            port: address.port(),
        });
        (config.in_flight_commands, config.max_connections) =
            (self.in_flight_commands, self.max_connections);
        (config.search_space, config.idle_timeout) = (search_space, idle_timeout);
        config.connect_pace = ConnectPace::new(NonZero::<u32>::MAX, NonZero::<u32>::MAX);
        config
    }

    fn cells(&self) -> Vec<String> {
        let spread =
            |figure: &dyn Fn(&Turn) -> f64, digits| spread(self.turns.iter().map(figure), digits);
        let mut cells = vec![
            self.in_flight_commands.to_string(),
            self.max_connections.to_string(),
            self.policy.clone(),
        ];
        cells.push(spread(&|turn| turn.connections_in_spike as f64, 0));
        cells.extend((0..5).map(|half| spread(&|turn| turn.connections_after[half] as f64, 0)));
        cells.push(spread(&|turn| turn.onset.p99_ms, 1));
        cells.push(spread(&|turn| turn.spike.p99_ms, 1));
        cells.push(spread(&|turn| turn.calm.p99_ms, 1));
        cells.push(spread(&|turn| turn.spike.calls_per_second, 0));
        cells.push(spread(&|turn| turn.spike.calls_per_write, 1));
        cells.push(spread(&|turn| turn.calm.calls_per_write, 1));
        cells
    }
}

impl figures::Results for Results {
    const NAME: &str = "connections";

    fn tables(&self) -> Vec<Table> {
        let mut sheet = Sheet::new(&[
            "in flight, most",
            "connections, most",
            "policy",
            "connections in the spike",
            "after 1/2 idle",
            "1",
            "1 1/2",
            "2",
            "2 1/2",
            "p99 ms, onset",
            "p99 ms, spike",
            "p99 ms, calm",
            "calls/s, spike",
            "calls/write, spike",
            "calls/write, calm",
        ]);
        self.rows.iter().for_each(|row| sheet.row(row.cells()));
        vec![Table::new("connections", sheet)]
    }
}
