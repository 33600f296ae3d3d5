//! Measures the execution of jobs by no-op workers.

use std::time::Instant;

use anyhow::Result;

use super::api::claim;
use super::{graphs, measure_stores};
use crate::figures::{RowFigures, Table, millis};
use crate::machine::{Meter, Testbed};
use crate::scenario::RunOptions;

/// Jobs of the chain.
const CHAIN_JOBS: usize = 500;

pub(super) const JOBS: &str = "no-op jobs/s";
pub(super) const JOIN: &str = "join of 10,000, s";

pub(super) async fn measure(
    options: &RunOptions,
    workflows: usize,
    parents: usize,
) -> Result<Table> {
    measure_stores(options, "execution", "execution", async |testbed, row| {
        pairs(testbed, row, workflows).await?;
        chain(testbed, row).await?;
        join(testbed, row, parents).await
    })
    .await
}

async fn pairs(testbed: &Testbed, row: &mut RowFigures<'_>, count: usize) -> Result<()> {
    let mut api = testbed.connect().await?;
    let mut meter = Meter::start(testbed)?;
    api.create_many(&graphs::pair("now"), count).await?;
    let created = meter.read()?;
    let took = testbed.run_all_jobs(count * 2).await?;
    let spent = meter.read()?;
    row.add(JOBS, 0, (count * 2) as f64 / took.as_secs_f64());
    spent.add_to(row, "job", count as u64 * 2);
    let bytes = created.bytes.zip(spent.bytes);
    let bytes = bytes.map(|(created, worked)| (created + worked) as f64 / count as f64);
    row.add("Redis bytes/workflow", 0, bytes);
    api.check_succeeded("bench", count).await
}

/// Measures the time from a report to the next job of the chain, at the worker.
async fn chain(testbed: &Testbed, row: &mut RowFigures<'_>) -> Result<()> {
    let mut api = testbed.connect().await?;
    api.post("/v1/workflows", graphs::chain(CHAIN_JOBS)).await?;
    let claim = claim("default", 0, 1, "5s");
    let mut claimed = api.claim(&claim).await?;
    let mut times = Vec::with_capacity(CHAIN_JOBS);
    for _ in 1..CHAIN_JOBS {
        let start = Instant::now();
        claimed = api.report(&claimed.job()?, &claim).await?;
        times.push(millis(start.elapsed()));
    }
    row.add_times("next of a chain", &mut times);
    api.report(&claimed.job()?, "null").await?;
    Ok(())
}

/// Measures all parents of a join and the join itself.
async fn join(testbed: &Testbed, row: &mut RowFigures<'_>, parents: usize) -> Result<()> {
    let mut api = testbed.connect().await?;
    api.post("/v1/workflows", graphs::join(parents)).await?;
    let mut meter = Meter::start(testbed)?;
    let took = testbed.run_all_jobs(parents + 1).await?;
    row.add(JOIN, 2, took.as_secs_f64());
    meter
        .read()?
        .add_commands_to(row, "job of it", parents as u64 + 1);
    api.check_succeeded("join", 1).await
}
