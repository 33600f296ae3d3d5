//! `tidegate-bench compare`: the cost of a decision, in memory and on Redis.
//!
//! h2load repeats one body, so each of its descriptors is one hot key; the load generator of this
//! crate adds loads with many keys.

mod decisions;
mod h2load;
mod memory;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::figures::{Table, duration, micros_each};
use crate::machine::{Store, Testbed};
use crate::scenario::{RunOptions, Scenario};
pub(crate) use decisions::{Decisions, KEYS, Traffic};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Compare {
    /// Keys of the loads that have many, over all descriptors of a request.
    #[arg(long, default_value_t = decisions::KEYS)]
    keys: u32,
    /// How long an idle server is watched.
    #[arg(long, default_value = "10s", value_parser = duration)]
    idle: Duration,
    /// When the memory is read after a million keys, in seconds after the last request.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 5, 10, 30])]
    delays: Vec<u64>,
}

/// A server, its store, and its load.
struct Variant<'a> {
    server: &'static str,
    program: &'a Path,
    store: Store,
    traffic: Traffic,
    descriptors: u16,
}

impl Scenario for Compare {
    fn name(&self) -> &'static str {
        "compare"
    }

    /// Fails if a server does not answer every request with OK.
    async fn measure(&self, options: &RunOptions) -> Result<Vec<Table>> {
        let program = options.program()?;
        Ok(vec![
            self.decisions(options).await?,
            memory::idle(&program, self.idle).await?,
            memory::million_keys(&program, &self.delays).await?,
        ])
    }
}

impl Compare {
    async fn decisions(&self, options: &RunOptions) -> Result<Table> {
        let tidegate = options.program()?;
        let reference = options.peer("envoyproxy/ratelimit", "ratelimit");
        let mut table = Table::new("decisions", &["server", "load", "descriptors"]);
        for _ in options.rounds("decisions") {
            for variant in variants(&tidegate, reference.as_deref()) {
                variant.turn(self.keys, options.turn, &mut table).await?;
            }
        }
        Ok(table)
    }
}

impl Variant<'_> {
    /// Measures a turn on a new server and adds its row.
    async fn turn(&self, keys: u32, time: Duration, table: &mut Table) -> Result<()> {
        let testbed = Testbed::start(self.program, self.store).await?;
        let turn = self.traffic.turn(&testbed, self.descriptors, keys, time);
        let Decisions {
            per_second,
            count,
            spent,
        } = turn.await?;
        let server = format!("{}, {}", self.server, self.store.counter_store_name());
        let mut row = table.row(&[&server, &self.traffic.name(), &self.descriptors]);
        row.add("decisions/s", 0, per_second);
        spent.add_to(&mut row, "decision", count);
        row.add("user", 1, micros_each(spent.server.user, count));
        row.add("system", 1, micros_each(spent.server.system, count));
        Ok(())
    }
}

fn variants<'a>(tidegate: &'a Path, reference: Option<&'a Path>) -> Vec<Variant<'a>> {
    let mut variants = Vec::new();
    for descriptors in [1, 10] {
        let mut add = |server, program, store, traffic| {
            variants.push(Variant {
                server,
                program,
                store,
                traffic,
                descriptors,
            });
        };
        for store in [Store::Embedded, Store::Redis] {
            for traffic in Traffic::ALL {
                add("Tidegate", tidegate, store, traffic);
            }
        }
        add("Tidegate", tidegate, Store::Memcached, Traffic::H2load);
        for store in [Store::Redis, Store::Memcached] {
            if let Some(program) = reference {
                add("envoyproxy/ratelimit", program, store, Traffic::H2load);
            }
        }
    }
    variants
}

/// Returns the rows of the README: the cost of a decision, here and in envoyproxy/ratelimit.
pub(crate) fn summary(decisions: &Table) -> Vec<[String; 3]> {
    let median = |server: &str, descriptors: u16| {
        let row = format!("{server}, {}, {descriptors}", Traffic::H2load.name());
        decisions.median(&row, "server CPU, us/decision", "us")
    };
    let row = |count: &str, descriptors, store: &str| {
        let median = |server| median(&format!("{server}, {store}"), descriptors);
        let reference = || format!("envoyproxy/ratelimit: {}", median("envoyproxy/ratelimit"));
        let theirs = (store == "Redis").then(reference);
        [
            format!("processor time for a decision on {count}, {store}"),
            median("Tidegate"),
            theirs.unwrap_or("-".to_owned()),
        ]
    };
    vec![
        row("one descriptor", 1, "Redis"),
        row("ten descriptors", 10, "Redis"),
        row("one descriptor", 1, "memory"),
    ]
}
