//! One workflow with very many jobs: a join of all the others.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{ApiClient, graphs, measure_stores};
use crate::figures::{RowFigures, Table, mebibytes, millis};
use crate::machine::Testbed;
use crate::scenario::RunOptions;

/// Number of reads of the workflow and of a page of its jobs.
const READS: usize = 20;

pub(super) async fn measure(options: &RunOptions, parents: usize) -> Result<Table> {
    let label = format!("a join of {parents}");
    measure_stores(options, "large", &label, async |testbed, row| {
        turn(testbed, row, parents).await
    })
    .await
}

async fn turn(testbed: &Testbed, row: &mut RowFigures<'_>, parents: usize) -> Result<()> {
    let mut api = testbed.connect().await?;
    let path = create_join(&mut api, row, parents).await?;
    let page = format!("{path}/jobs?limit=100");
    for (head, path) in [("summary, ms", &path), ("page of 100 jobs, ms", &page)] {
        let start = Instant::now();
        for _ in 0..READS {
            api.get(path).await?;
        }
        row.add(head, 2, millis(start.elapsed()) / READS as f64);
    }
    let took = testbed.run_all_jobs(parents + 1).await?;
    row.add("all jobs done, s", 2, took.as_secs_f64());
    let highest = testbed.server.process().highest_resident_bytes()?;
    row.add("server, MiB", 0, mebibytes(highest));
    let shown = api.json(&path).await?;
    ensure!(
        shown["status"] == "succeeded",
        "the join did not end: {shown}"
    );
    Ok(())
}

/// Measures the creation of a join and returns its path.
async fn create_join(
    api: &mut ApiClient,
    row: &mut RowFigures<'_>,
    parents: usize,
) -> Result<String> {
    let body = graphs::join(parents);
    let start = Instant::now();
    let created = api.post("/v1/workflows", body).await?;
    row.add("created, s", 2, start.elapsed().as_secs_f64());
    let created: Value = serde_json::from_slice(&created)?;
    let id = created["id"].as_str().unwrap_or_default();
    Ok(format!("/v1/workflows/{id}"))
}
