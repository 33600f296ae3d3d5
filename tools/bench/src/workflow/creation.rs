//! How fast workflows are created: one after the other, in bulk, and one large one.

pub(super) mod names;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::api::Api;
use super::arguments::Arguments;
use super::shapes;
use crate::figures::{Sheet, micros, spread};
use crate::machine::{Store, Testbed};

/// Workflows of a bulk request.
const BULK: usize = 1_000;
/// Connections that send bulk requests.
const CONNECTIONS: usize = 2;
/// Jobs of the large workflow.
const LARGE: usize = 1_000;

/// What was measured of a store, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Creation {
    store: String,
    serial_per_second: Vec<f64>,
    bulk_per_second: Vec<f64>,
    server_us_per_workflow: Vec<f64>,
    redis_us_per_workflow: Vec<f64>,
    large_ms: Vec<f64>,
    large_reads: Vec<f64>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Creation>> {
    let mut rows = ["Redis", "SQLite"].map(|store| Creation {
        store: store.to_owned(),
        ..Creation::default()
    });
    for round in 1..=arguments.rounds {
        eprintln!("creation, round {round} of {}", arguments.rounds);
        for (row, store) in rows.iter_mut().zip([Store::Redis, Store::Embedded]) {
            let testbed = Testbed::start(&arguments.server, store).await?;
            serial(&testbed, row, arguments.executed / 4).await?;
            bulk(&testbed, row, arguments.executed.max(BULK)).await?;
            large(&testbed, row).await?;
        }
    }
    Ok(rows.into())
}

async fn serial(testbed: &Testbed, row: &mut Creation, count: usize) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    let one = shapes::pair("manual");
    let start = Instant::now();
    for _ in 0..count {
        api.post("/v1/workflows", one.clone()).await?;
    }
    row.serial_per_second
        .push(count as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

async fn bulk(testbed: &Testbed, row: &mut Creation, count: usize) -> anyhow::Result<()> {
    let body = shapes::batch(&shapes::pair("manual"), BULK);
    let each = count.div_ceil(BULK * CONNECTIONS);
    let before = testbed.costs()?;
    let start = Instant::now();
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (mut api, body) = (Api::connect(testbed.server.api()).await?, body.clone());
        senders.spawn(async move {
            for _ in 0..each {
                api.post("/v1/workflows:batch", body.clone()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    let created = (each * CONNECTIONS * BULK) as f64;
    row.bulk_per_second
        .push(created / start.elapsed().as_secs_f64());
    let spent = testbed.costs()?.since(before);
    row.server_us_per_workflow
        .push(micros(spent.server.total) / created);
    row.redis_us_per_workflow
        .extend(spent.redis.map(|time| micros(time) / created));
    Ok(())
}

async fn large(testbed: &Testbed, row: &mut Creation) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    let body = shapes::layers(LARGE);
    // The first registers the workflow's name.
    api.post("/v1/workflows", body.clone()).await?;
    for _ in 0..5 {
        let before = testbed.redis_counts();
        let start = Instant::now();
        api.post("/v1/workflows", body.clone()).await?;
        row.large_ms.push(start.elapsed().as_secs_f64() * 1_000.0);
        // One of the reads is the question itself.
        row.large_reads
            .push((testbed.redis_counts().reads - before.reads).saturating_sub(1) as f64);
    }
    Ok(())
}

pub(crate) fn sheet(rows: &[Creation]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "creation",
        "serial, two-job workflows/s",
        "bulk of 1,000, workflows/s",
        "server CPU, us",
        "Redis CPU, us",
        "1,000 jobs, ms",
        "reads at Redis",
    ]);
    for row in rows {
        let spread = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.store.clone(),
            spread(&row.serial_per_second, 0),
            spread(&row.bulk_per_second, 0),
            spread(&row.server_us_per_workflow, 1),
            spread(&row.redis_us_per_workflow, 1),
            spread(&row.large_ms, 1),
            spread(&row.large_reads, 0),
        ]);
    }
    sheet
}
