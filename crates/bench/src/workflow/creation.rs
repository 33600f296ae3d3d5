//! How fast workflows are created: one after the other, in bulk, and one large one.

use std::fmt;
use std::time::Instant;

use serde_json::{Value, json};

use super::api::Api;
use super::{Arguments, shapes, spread};
use crate::figures::Sheet;
use crate::figures::micros;
use crate::machine::{Store, Testbed};

/// Workflows of a bulk request.
const BULK: usize = 1_000;
/// Connections that send bulk requests.
const CONNECTIONS: usize = 2;
/// Jobs of the large workflow.
const LARGE: usize = 1_000;

/// What was measured, by store.
pub(crate) struct Creation(Vec<Row>);

#[derive(Default)]
struct Row {
    store: &'static str,
    serial_per_second: Vec<f64>,
    bulk_per_second: Vec<f64>,
    server_us: Vec<f64>,
    redis_us: Vec<f64>,
    large_ms: Vec<f64>,
    large_reads: Vec<f64>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Creation> {
    let mut rows: Vec<Row> = ["Redis", "SQLite"].into_iter().map(|store| Row { store, ..Row::default() }).collect();
    for round in 1..=arguments.rounds {
        eprintln!("creation, round {round} of {}", arguments.rounds);
        for (row, store) in rows.iter_mut().zip([Store::Redis, Store::Embedded]) {
            let testbed = Testbed::start(&arguments.server, store).await?;
            serial(&testbed, row, arguments.executed / 4).await?;
            bulk(&testbed, row, arguments.executed.max(BULK)).await?;
            large(&testbed, row).await?;
        }
    }
    Ok(Creation(rows))
}

async fn serial(testbed: &Testbed, row: &mut Row, count: usize) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    let one = shapes::pair("manual");
    let start = Instant::now();
    for _ in 0..count {
        api.post("/v1/workflows", one.clone()).await?;
    }
    row.serial_per_second.push(count as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

async fn bulk(testbed: &Testbed, row: &mut Row, count: usize) -> anyhow::Result<()> {
    let body = shapes::batch(&shapes::pair("manual"), BULK);
    let each = count / BULK / CONNECTIONS;
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
    row.bulk_per_second.push(created / start.elapsed().as_secs_f64());
    let spent = testbed.costs()?.since(before);
    row.server_us.push(micros(spent.server.total) / created);
    row.redis_us.extend(spent.redis.map(|time| micros(time) / created));
    Ok(())
}

async fn large(testbed: &Testbed, row: &mut Row) -> anyhow::Result<()> {
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
        row.large_reads.push((testbed.redis_counts().reads - before.reads).saturating_sub(1) as f64);
    }
    Ok(())
}

impl Creation {
    pub(crate) fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "store": row.store, "serial_per_second": row.serial_per_second, "bulk_per_second": row.bulk_per_second,
                "server_us_per_workflow": row.server_us, "redis_us_per_workflow": row.redis_us,
                "large_ms": row.large_ms, "large_reads": row.large_reads,
            })
        };
        self.0.iter().map(row).collect()
    }
}

impl fmt::Display for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = [
            "creation",
            "serial, two-job workflows/s",
            "bulk of 1,000, workflows/s",
            "server CPU, us",
            "Redis CPU, us",
            "1,000 jobs, ms",
            "reads at Redis",
        ];
        let mut sheet = Sheet::new(&heads);
        for row in &self.0 {
            sheet.row(vec![
                row.store.to_owned(),
                spread(&row.serial_per_second, 0),
                spread(&row.bulk_per_second, 0),
                spread(&row.server_us, 1),
                spread(&row.redis_us, 1),
                spread(&row.large_ms, 1),
                spread(&row.large_reads, 0),
            ]);
        }
        sheet.row(["BullMQ 6.7 (flows)", "1745", "3752"].map(str::to_owned).to_vec());
        sheet.row(["Gush 5.0", "560-1275"].map(str::to_owned).to_vec());
        write!(f, "{sheet}")
    }
}
