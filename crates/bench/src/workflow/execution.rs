//! How fast jobs are executed by workers that do nothing.

use std::fmt;
use std::time::Instant;

use anyhow::ensure;
use serde_json::{Value, json};

use super::api::{Api, Work, report};
use super::work::work;
use super::{Arguments, Times, shapes, spread};
use crate::figures::Sheet;
use crate::figures::micros;
use crate::machine::{Store, Testbed};

/// Jobs of the chain.
const CHAIN: usize = 500;

/// What was measured, by store.
pub(crate) struct Execution(Vec<Row>);

#[derive(Default)]
struct Row {
    store: &'static str,
    jobs_per_second: Vec<f64>,
    server_us: Vec<f64>,
    redis_us: Vec<f64>,
    chain_ms: Vec<f64>,
    join_seconds: Vec<f64>,
    join_commands: Vec<f64>,
    memory: Vec<f64>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Execution> {
    let mut rows: Vec<Row> = ["Redis", "SQLite"].into_iter().map(|store| Row { store, ..Row::default() }).collect();
    for round in 1..=arguments.rounds {
        eprintln!("execution, round {round} of {}", arguments.rounds);
        for (row, store) in rows.iter_mut().zip([Store::Redis, Store::Embedded]) {
            let testbed = Testbed::start(&arguments.server, store).await?;
            pairs(&testbed, row, arguments.executed).await?;
            chain(&testbed, row).await?;
            join(&testbed, row, arguments.parents).await?;
        }
    }
    Ok(Execution(rows))
}

async fn pairs(testbed: &Testbed, row: &mut Row, workflows: usize) -> anyhow::Result<()> {
    const BULK: usize = 1_000;
    let memory = testbed.redis_counts().memory;
    let mut api = Api::connect(testbed.server.api()).await?;
    for _ in 0..workflows.div_ceil(BULK) {
        api.post("/v1/workflows:batch", shapes::batch(&shapes::pair("now"), BULK)).await?;
    }
    let created = workflows.div_ceil(BULK) * BULK;
    let before = testbed.costs()?;
    let took = work(testbed.server.api(), created * 2).await?;
    let spent = testbed.costs()?.since(before);
    let jobs = (created * 2) as f64;
    row.jobs_per_second.push(jobs / took.as_secs_f64());
    row.server_us.push(micros(spent.server.total) / jobs);
    if let Some(redis) = spent.redis {
        row.redis_us.push(micros(redis) / jobs);
        row.memory.push((testbed.redis_counts().memory - memory) as f64 / created as f64);
    }
    let counts = api.json("/v1/workflows:count?name=bench").await?;
    ensure!(counts["by_status"]["succeeded"] == created, "not all workflows succeeded: {counts}");
    Ok(())
}

/// The time from a report to the next job of the chain, as the worker sees it.
async fn chain(testbed: &Testbed, row: &mut Row) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    api.post("/v1/workflows", shapes::chain(CHAIN)).await?;
    let wish = r#"{"queues":["default"],"worker":"w","limit":1,"wait":"5s"}"#;
    let mut answer = api.post("/v1/jobs/claim", wish.to_owned()).await?;
    for _ in 1..CHAIN {
        let body = report(&serde_json::from_slice::<Work<'_>>(&answer)?, wish);
        let start = Instant::now();
        answer = api.post("/v1/jobs/report", body).await?;
        row.chain_ms.push(start.elapsed().as_secs_f64() * 1_000.0);
        ensure!(serde_json::from_slice::<Work<'_>>(&answer)?.jobs.len() == 1, "the chain does not go on");
    }
    let body = report(&serde_json::from_slice::<Work<'_>>(&answer)?, r#"{"queues":["none"],"worker":"w"}"#);
    api.post("/v1/jobs/report", body).await?;
    Ok(())
}

/// All parents of a join and the join itself.
async fn join(testbed: &Testbed, row: &mut Row, parents: usize) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    api.post("/v1/workflows", shapes::join(parents)).await?;
    let before = testbed.redis_counts().commands;
    let took = work(testbed.server.api(), parents + 1).await?;
    row.join_seconds.push(took.as_secs_f64());
    if testbed.redis.is_some() {
        row.join_commands.push((testbed.redis_counts().commands - before) as f64 / (parents + 1) as f64);
    }
    let counts = api.json("/v1/workflows:count?name=join").await?;
    ensure!(counts["by_status"]["succeeded"] == 1, "the join did not end: {counts}");
    Ok(())
}

impl Execution {
    pub(crate) fn to_json(&self) -> Value {
        let row = |row: &Row| {
            let chain = Times::new(row.chain_ms.clone());
            json!({
                "store": row.store, "jobs_per_second": row.jobs_per_second, "server_us_per_job": row.server_us,
                "redis_us_per_job": row.redis_us, "chain_p50_ms": chain.at(0.5), "chain_p99_ms": chain.at(0.99),
                "join_seconds": row.join_seconds, "join_commands_per_job": row.join_commands,
                "redis_bytes_per_finished_workflow": row.memory,
            })
        };
        self.0.iter().map(row).collect()
    }
}

impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = [
            "execution",
            "no-op jobs/s",
            "server CPU, us/job",
            "Redis CPU, us/job",
            "next of a chain p50, p99, ms",
            "join of 10,000, s",
            "Redis commands/job of it",
            "Redis bytes/workflow",
        ];
        let mut sheet = Sheet::new(&heads);
        for row in &self.0 {
            let chain = Times::new(row.chain_ms.clone());
            sheet.row(vec![
                row.store.to_owned(),
                spread(&row.jobs_per_second, 0),
                spread(&row.server_us, 1),
                spread(&row.redis_us, 1),
                format!("{:.2}, {:.2}", chain.at(0.5), chain.at(0.99)),
                spread(&row.join_seconds, 2),
                spread(&row.join_commands, 2),
                spread(&row.memory, 0),
            ]);
        }
        let others = [
            ["BullMQ 6.7", "7938", "", "", "", "0.32 (of 2,000)"],
            ["Gush 5.0", "360-540", "", "", "", "13-21 (of 400)"],
        ];
        others.into_iter().for_each(|row| sheet.row(row.map(str::to_owned).to_vec()));
        write!(f, "{sheet}")
    }
}
