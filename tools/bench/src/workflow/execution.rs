//! How fast jobs are executed by workers that do nothing.

pub(super) mod large;
pub(super) mod watchers;

use std::time::Instant;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::api::{Api, Work, report};
use super::arguments::Arguments;
use super::shapes;
use super::times::Times;
use super::work::work;
use crate::figures::{Sheet, micros, spread};
use crate::machine::{Store, Testbed};

/// Jobs of the chain.
const CHAIN: usize = 500;

/// What was measured of a store, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Execution {
    store: String,
    jobs_per_second: Vec<f64>,
    server_us_per_job: Vec<f64>,
    redis_us_per_job: Vec<f64>,
    chain_p50_ms: Vec<f64>,
    chain_p99_ms: Vec<f64>,
    join_seconds: Vec<f64>,
    join_commands_per_job: Vec<f64>,
    redis_bytes_per_finished_workflow: Vec<f64>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Execution>> {
    let mut rows = ["Redis", "SQLite"].map(|store| Execution {
        store: store.to_owned(),
        ..Execution::default()
    });
    for round in 1..=arguments.rounds {
        eprintln!("execution, round {round} of {}", arguments.rounds);
        for (row, store) in rows.iter_mut().zip([Store::Redis, Store::Embedded]) {
            let testbed = Testbed::start(&arguments.server, store).await?;
            pairs(&testbed, row, arguments.executed).await?;
            chain(&testbed, row).await?;
            join(&testbed, row, arguments.parents).await?;
        }
    }
    Ok(rows.into())
}

async fn pairs(testbed: &Testbed, row: &mut Execution, workflows: usize) -> anyhow::Result<()> {
    const BULK: usize = 1_000;
    let memory = testbed.redis_counts().memory;
    let mut api = Api::connect(testbed.server.api()).await?;
    for _ in 0..workflows.div_ceil(BULK) {
        api.post(
            "/v1/workflows:batch",
            shapes::batch(&shapes::pair("now"), BULK),
        )
        .await?;
    }
    let created = workflows.div_ceil(BULK) * BULK;
    let before = testbed.costs()?;
    let took = work(testbed.server.api(), created * 2).await?;
    let spent = testbed.costs()?.since(before);
    let jobs = (created * 2) as f64;
    row.jobs_per_second.push(jobs / took.as_secs_f64());
    row.server_us_per_job
        .push(micros(spent.server.total) / jobs);
    if let Some(redis) = spent.redis {
        row.redis_us_per_job.push(micros(redis) / jobs);
        row.redis_bytes_per_finished_workflow
            .push((testbed.redis_counts().memory - memory) as f64 / created as f64);
    }
    let counts = api.json("/v1/workflows:count?name=bench").await?;
    ensure!(
        counts["by_status"]["succeeded"] == created,
        "not all workflows succeeded: {counts}"
    );
    Ok(())
}

/// The time from a report to the next job of the chain, as the worker sees it.
async fn chain(testbed: &Testbed, row: &mut Execution) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    api.post("/v1/workflows", shapes::chain(CHAIN)).await?;
    let wish = r#"{"queues":["default"],"worker":"w","limit":1,"wait":"5s"}"#;
    let mut answer = api.post("/v1/jobs/claim", wish.to_owned()).await?;
    let mut milliseconds = Vec::with_capacity(CHAIN);
    for _ in 1..CHAIN {
        let body = report(&serde_json::from_slice::<Work<'_>>(&answer)?, wish);
        let start = Instant::now();
        answer = api.post("/v1/jobs/report", body).await?;
        milliseconds.push(start.elapsed().as_secs_f64() * 1_000.0);
        ensure!(
            serde_json::from_slice::<Work<'_>>(&answer)?.jobs.len() == 1,
            "the chain does not go on"
        );
    }
    let times = Times::new(milliseconds);
    row.chain_p50_ms.push(times.at(0.5));
    row.chain_p99_ms.push(times.at(0.99));
    let body = report(
        &serde_json::from_slice::<Work<'_>>(&answer)?,
        r#"{"queues":["none"],"worker":"w"}"#,
    );
    api.post("/v1/jobs/report", body).await?;
    Ok(())
}

/// All parents of a join and the join itself.
async fn join(testbed: &Testbed, row: &mut Execution, parents: usize) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    api.post("/v1/workflows", shapes::join(parents)).await?;
    let before = testbed.redis_counts().commands;
    let took = work(testbed.server.api(), parents + 1).await?;
    row.join_seconds.push(took.as_secs_f64());
    if testbed.redis.is_some() {
        row.join_commands_per_job
            .push((testbed.redis_counts().commands - before) as f64 / (parents + 1) as f64);
    }
    let counts = api.json("/v1/workflows:count?name=join").await?;
    ensure!(
        counts["by_status"]["succeeded"] == 1,
        "the join did not end: {counts}"
    );
    Ok(())
}

pub(crate) fn sheet(rows: &[Execution]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "execution",
        "no-op jobs/s",
        "server CPU, us/job",
        "Redis CPU, us/job",
        "next of a chain p50, ms",
        "p99, ms",
        "join of 10,000, s",
        "Redis commands/job of it",
        "Redis bytes/workflow",
    ]);
    for row in rows {
        let spread = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.store.clone(),
            spread(&row.jobs_per_second, 0),
            spread(&row.server_us_per_job, 1),
            spread(&row.redis_us_per_job, 1),
            spread(&row.chain_p50_ms, 2),
            spread(&row.chain_p99_ms, 2),
            spread(&row.join_seconds, 2),
            spread(&row.join_commands_per_job, 2),
            spread(&row.redis_bytes_per_finished_workflow, 0),
        ]);
    }
    sheet
}
