//! Measures the creation of workflows: in sequence, in bulk, and one large one.

use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use super::{graphs, measure_stores};
use crate::figures::{RowFigures, Table, millis};
use crate::machine::{Meter, Testbed};
use crate::scenario::RunOptions;

/// Workflows of a bulk request.
const WORKFLOWS_PER_REQUEST: usize = 1_000;
/// Connections that send bulk requests.
const CONNECTIONS: usize = 2;
/// Jobs of the large workflow.
const LARGE_WORKFLOW_JOBS: usize = 1_000;

pub(super) const SERIAL: &str = "serial, two-job workflows/s";
pub(super) const IN_BULK: &str = "bulk of 1,000, workflows/s";

pub(super) async fn measure(options: &RunOptions, workflows: usize) -> Result<Table> {
    measure_stores(options, "creation", "creation", async |testbed, row| {
        serial(testbed, row, workflows / 4).await?;
        bulk(testbed, row, workflows.max(WORKFLOWS_PER_REQUEST)).await?;
        large(testbed, row).await
    })
    .await
}

async fn serial(testbed: &Testbed, row: &mut RowFigures<'_>, count: usize) -> Result<()> {
    let mut api = testbed.connect().await?;
    let one = graphs::pair("manual");
    let start = Instant::now();
    for _ in 0..count {
        api.post("/v1/workflows", one.clone()).await?;
    }
    row.add(SERIAL, 0, count as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

async fn bulk(testbed: &Testbed, row: &mut RowFigures<'_>, count: usize) -> Result<()> {
    let each = count.div_ceil(WORKFLOWS_PER_REQUEST * CONNECTIONS) * WORKFLOWS_PER_REQUEST;
    let mut meter = Meter::start(testbed)?;
    let mut senders = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut api = testbed.connect().await?;
        senders.spawn(async move { api.create_many(&graphs::pair("manual"), each).await });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    let (spent, created) = (meter.read()?, each * CONNECTIONS);
    row.add(IN_BULK, 0, created as f64 / spent.elapsed.as_secs_f64());
    spent.add_to(row, "workflow", created as u64);
    Ok(())
}

async fn large(testbed: &Testbed, row: &mut RowFigures<'_>) -> Result<()> {
    let mut api = testbed.connect().await?;
    let body = graphs::layers(LARGE_WORKFLOW_JOBS);
    // The first request registers the workflow's name.
    api.post("/v1/workflows", body.clone()).await?;
    for _ in 0..5 {
        let mut meter = Meter::start(testbed)?;
        api.post("/v1/workflows", body.clone()).await?;
        let spent = meter.read()?;
        row.add("1,000 jobs, ms", 1, millis(spent.elapsed));
        row.add("reads at Redis", 0, spent.reads.map(|reads| reads as f64));
    }
    Ok(())
}
