//! `tidegate-bench workflow`: workflows through the HTTP API, with workers that do nothing.

mod api;
mod bullmq;
mod creation;
mod execution;
pub(crate) mod graphs;
mod large;
mod limits;
mod listing;
mod python;
mod recovery;
mod servers;
mod worker;

use anyhow::Result;
use clap::Args;

use crate::figures::{RowFigures, Table};
use crate::machine::{Store, Testbed};
use crate::scenario::{RunOptions, Scenario};
pub(crate) use api::ApiClient;
use bullmq::BullMq;
pub(crate) use worker::run_all_jobs;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Workflow {
    /// Workflows that are listed, at most: 1,000, 10,000 and so on up to here.
    #[arg(long, default_value_t = 1_000_000)]
    workflows: usize,
    /// Pages read at each size.
    #[arg(long, default_value_t = 300)]
    pages: usize,
    /// Two-job workflows that are created and executed in a turn.
    #[arg(long, default_value_t = 20_000)]
    executed: usize,
    /// Parents of the join.
    #[arg(long, default_value_t = 10_000)]
    parents: usize,
    /// Parents of the join of the large workflow.
    #[arg(long, default_value_t = 100_000)]
    many_parents: usize,
    /// Measures only several servers on one Redis, for one number of servers after the other.
    #[arg(long, value_delimiter = ',')]
    servers: Vec<usize>,
    /// Measures only the worker of the Python SDK beside others.
    #[arg(long)]
    python: bool,
    /// Measures only what limits of jobs cost.
    #[arg(long)]
    limits: bool,
    /// Jobs that wait behind a thousand keys without room.
    #[arg(long, default_value_t = 1_000_000)]
    waiting: usize,
}

/// The numbers of servers of a whole run.
const SERVERS: [usize; 4] = [1, 2, 4, 8];
/// The workflows of a whole run.
const WHOLE_RUN: usize = 10_000;

impl Scenario for Workflow {
    fn name(&self) -> &'static str {
        match self {
            Self { servers, .. } if !servers.is_empty() => "servers",
            Self { python: true, .. } => "python",
            Self { limits: true, .. } => "limits",
            _ => "workflow",
        }
    }

    async fn measure(&self, options: &RunOptions) -> Result<Vec<Table>> {
        let jobs = self.executed;
        match self.name() {
            "servers" => servers::measure(options, &self.servers, jobs).await,
            "python" => Ok(vec![python::measure(options, jobs).await?]),
            "limits" => Ok(vec![
                limits::cost(options, jobs).await?,
                limits::key_with_room(options, self.waiting).await?,
            ]),
            _ => self.measure_all(options).await,
        }
    }
}

impl Workflow {
    async fn measure_all(&self, options: &RunOptions) -> Result<Vec<Table>> {
        let workflows = self.executed;
        let mut creation = creation::measure(options, workflows).await?;
        let mut execution = execution::measure(options, workflows, self.parents).await?;
        for _ in options.rounds("BullMQ") {
            if let Some(bullmq) = BullMq::measure(options, workflows, self.parents).await? {
                bullmq.add_to(&mut creation, &mut execution);
            }
        }
        // Idle servers are measured for some time, which a small run does not have.
        let is_whole = workflows >= WHOLE_RUN;
        let numbers: &[usize] = if is_whole { &SERVERS } else { &[] };
        let mut tables = vec![
            creation,
            execution,
            large::measure(options, self.many_parents).await?,
            listing::measure(options, self.workflows, self.pages).await?,
            recovery::measure(options).await?,
        ];
        tables.extend(servers::measure(options, numbers, workflows).await?);
        Ok(tables)
    }
}

/// Fills a table with a row for Redis and one for SQLite, alternately, each on a new server.
async fn measure_stores(
    options: &RunOptions,
    name: &str,
    label: &str,
    turn: impl AsyncFn(&Testbed, &mut RowFigures<'_>) -> Result<()>,
) -> Result<Table> {
    let mut table = Table::new(name, &[label]);
    for _ in options.rounds(name) {
        for store in [Store::Redis, Store::Embedded] {
            let testbed = Testbed::start(&options.program()?, store).await?;
            turn(&testbed, &mut table.row(&[&store.workflow_store_name()])).await?;
        }
    }
    Ok(table)
}
