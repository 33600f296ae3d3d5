//! `tidegate-bench workflow`: workflows through the HTTP API, with workers that do nothing.

mod api;
mod arguments;
mod bullmq;
mod creation;
mod execution;
pub(crate) mod layout;
mod limits;
mod listing;
mod python;
mod recovery;
mod servers;
pub(crate) mod shapes;
mod threads;
mod times;
mod work;

use serde::{Deserialize, Serialize};

use crate::figures::{self, Table, finish};
use crate::machine::server;
pub(crate) use api::Api;
pub(crate) use arguments::Arguments;
use bullmq::BullMq;
use creation::Creation;
use creation::names::{self, Names};
use execution::Execution;
use execution::large::{self, Large};
use execution::watchers::{self, Watchers};
use listing::Listing;
use recovery::Recovery;
use servers::Servers;
use threads::Threads;
pub(crate) use work::work;

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    creation: Vec<Creation>,
    #[serde(default)]
    names: Vec<Names>,
    execution: Vec<Execution>,
    #[serde(default)]
    large: Vec<Large>,
    bullmq: Option<BullMq>,
    listing: Vec<Listing>,
    recovery: Recovery,
    #[serde(default)]
    threads: Vec<Threads>,
    #[serde(default)]
    watchers: Vec<Watchers>,
    #[serde(default)]
    servers: Vec<Servers>,
}

/// The numbers of servers of a whole run.
const SERVERS: [usize; 4] = [1, 2, 4, 8];
/// The workflows of a whole run.
const WORTH_WATCHING: usize = 10_000;

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(mut arguments: Arguments) -> anyhow::Result<()> {
    // Absolute, because the server runs in a folder of its own.
    arguments.server = server::find(&arguments.server)?;
    if !arguments.servers.is_empty() {
        let measured = servers::measure(&arguments, &arguments.servers).await?;
        println!("{}", servers::sheet(&measured));
        return Ok(());
    }
    if arguments.watchers {
        println!("{}", watchers::sheet(&watchers::measure(&arguments).await?));
        return Ok(());
    }
    if arguments.python {
        return finish(&python::measure(&arguments).await?, &arguments.results);
    }
    if arguments.limits {
        return finish(
            &limits::cost::measure(&arguments).await?,
            &arguments.results,
        );
    }
    if arguments.scale.is_wanted() {
        return finish(
            &limits::scale::measure(&arguments).await?,
            &arguments.results,
        );
    }
    // Idle servers are watched for a while, which a small run has no time for.
    let numbers: &[usize] = if arguments.executed < WORTH_WATCHING {
        &[]
    } else {
        &SERVERS
    };
    let results = Results {
        creation: creation::measure(&arguments).await?,
        names: names::measure(&arguments).await?,
        execution: execution::measure(&arguments).await?,
        large: large::measure(&arguments).await?,
        bullmq: bullmq::measure(&arguments).await?,
        listing: listing::measure(&arguments).await?,
        recovery: recovery::measure(&arguments).await?,
        threads: threads::measure(&arguments).await?,
        watchers: watchers::measure(&arguments).await?,
        servers: servers::measure(&arguments, numbers).await?,
    };
    finish(&results, &arguments.results)
}

impl figures::Results for Results {
    const NAME: &str = "workflow";

    fn tables(&self) -> Vec<Table> {
        let mut creation = creation::sheet(&self.creation);
        let mut execution = execution::sheet(&self.execution);
        if let Some(bullmq) = &self.bullmq {
            creation.row(bullmq.creation());
            execution.row(bullmq.execution());
        }
        vec![
            Table::new("creation", creation),
            Table::new("names", names::sheet(&self.names)),
            Table::new("execution", execution),
            Table::new("large", large::sheet(&self.large)),
            Table::new("listing", listing::sheet(&self.listing)),
            Table::new("recovery", self.recovery.sheet()),
            Table::new("threads", threads::sheet(&self.threads)),
            Table::new("watchers", watchers::sheet(&self.watchers)),
            Table::new("servers", servers::sheet(&self.servers)),
        ]
    }
}
