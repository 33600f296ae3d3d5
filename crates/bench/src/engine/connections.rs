//! `tidegate-bench connections`: how many connections a spike opens, and how many are left when it is over.
//!
//! A choice that spreads load keeps every connection in use that it ever opened. One that prefers the oldest lets the others
//! fall idle, and the idle timeout closes them. All choices get the same capacity for each connection.

mod spike;

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Address, Config, ConnectPace, Fill, Selection};

use crate::delay::{Accuracy, DelayProxy};
use crate::figures::Sheet;
use crate::figures::write_json;
use crate::machine::pin::{self, Core};
use spike::{Part, Seen, Spike};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Callers of the spike.
    #[arg(long, default_value_t = 1_024)]
    callers: usize,
    /// Callers that stay.
    #[arg(long, default_value_t = 16)]
    calm_callers: usize,
    /// Length of the spike. A node opens one connection at a time, about forty a second at ten milliseconds.
    #[arg(long, default_value = "4s", value_parser = crate::figures::duration)]
    turn: Duration,
    /// A connection closes after this time without a reply; the calm lasts two and a half times as long.
    #[arg(long, default_value = "2s", value_parser = crate::figures::duration)]
    idle_timeout: Duration,
    /// The delay of each direction. Far enough for a full connection to be worth another one.
    #[arg(long, default_value = "5ms", value_parser = crate::figures::duration)]
    one_way: Duration,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

/// Commands in flight on one connection, and connections, at most. The last is the default; the others leave the policy
/// free to open one for every caller.
const BOUNDS: [(usize, usize); 3] = [(4, 1_024), (100, 1_024), (1_024, 4)];

const POLICIES: [(&str, Selection); 4] = [
    ("random", Selection::Linear { space: 0 }),
    ("linear, 16", Selection::Linear { space: 16 }),
    ("core pool of 4", Selection::CorePool { size: 4, fill: Fill::First }),
    ("power of two", Selection::PowerOfTwo { core: 0, effort: 5, fill: Fill::OnDemand }),
];

const SERVICETALK: &str = "\
ServiceTalk on linear search, with HTTP/2 in Java: about 256 connections before and fewer than 10 after, p99 2.5 to 4 times lower.";

/// A policy within bounds, and what it did.
struct Row {
    policy: &'static str,
    bounds: (usize, usize),
    seen: Seen,
}

/// Measures, prints the table and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let accuracy = Accuracy::measure()?;
    let redis = RedisServer::start().await;
    pin::process(redis.pid(), Core::Servers)?;
    pin::current_thread(Core::Servers)?;
    let proxy = DelayProxy::start(&[([127, 0, 0, 1], redis.port()).into()], arguments.one_way)?;
    pin::current_thread(Core::Load)?;
    let address = proxy.addresses()[0];
    let mut rows = Vec::new();
    for bounds in BOUNDS {
        for (policy, selection) in POLICIES {
            eprintln!("{policy}, at most {} in flight", bounds.0);
            let mut config = Config::single(Address::Tcp { host: address.ip().to_string(), port: address.port() });
            (config.in_flight_commands, config.max_connections) = bounds;
            (config.selection, config.idle_timeout) = (selection, arguments.idle_timeout);
            config.connect_pace = ConnectPace::new(NonZero::<u32>::MAX, NonZero::<u32>::MAX);
            let spike = Spike {
                config,
                callers: arguments.callers,
                calm_callers: arguments.calm_callers,
                time: arguments.turn,
                calm: arguments.idle_timeout * 5 / 2,
            };
            rows.push(Row { policy, bounds, seen: spike.run().await? });
        }
    }
    println!(
        "{accuracy}\nOne node, {:?} each way; Redis and proxy on one core, the load on the other.",
        arguments.one_way
    );
    println!(
        "{} callers for {:?} (onset and spike, half each), then {} (calm); connections close after {:?} without a reply.\n",
        arguments.callers, arguments.turn, arguments.calm_callers, arguments.idle_timeout
    );
    println!("{}", sheet(&rows, arguments.idle_timeout));
    println!("{SERVICETALK}");
    let json = json!({ "proxy": accuracy.to_json(), "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>() });
    write_json(&arguments.results.join("connections.json"), &json)
}

fn sheet(rows: &[Row], idle: Duration) -> Sheet {
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
    for Row { policy, bounds, seen } in rows {
        let mut cells =
            vec![bounds.0.to_string(), bounds.1.to_string(), (*policy).to_owned(), seen.most_in_spike().to_string()];
        cells.extend((1..=5).map(|half| seen.connections_after(idle * half / 2).to_string()));
        cells.extend([&seen.onset, &seen.spike, &seen.calm].map(|part| format!("{:.2}", part.p99_ms())));
        cells.push(format!("{:.0}", seen.spike.calls_per_second()));
        cells.extend([&seen.spike, &seen.calm].map(|part| format!("{:.1}", part.calls_per_write)));
        sheet.row(cells);
    }
    sheet
}

impl Row {
    fn to_json(&self) -> Value {
        let sample = |(at, connections): &(Duration, u64)| json!([at.as_secs_f64(), connections]);
        json!({
            "policy": self.policy,
            "in_flight_commands": self.bounds.0,
            "max_connections": self.bounds.1,
            "connections_by_second": self.seen.samples.iter().map(sample).collect::<Vec<_>>(),
            "spike_seconds": self.seen.spike_time.as_secs_f64(),
            "onset": self.seen.onset.to_json(),
            "spike": self.seen.spike.to_json(),
            "calm": self.seen.calm.to_json(),
        })
    }
}

impl Part {
    fn to_json(&self) -> Value {
        json!({ "seconds": self.time.as_secs_f64(), "calls_per_write": self.calls_per_write, "calls": self.tally.to_json() })
    }
}
