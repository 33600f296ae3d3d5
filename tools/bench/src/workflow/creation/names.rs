//! What many names of workflows and queues cost: creation, pages of queues, and idle traffic, with one name and with many.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::figures::{Sheet, micros, spread};
use crate::machine::{Store, Testbed};
use crate::workflow::api::Api;
use crate::workflow::arguments::Arguments;
use crate::workflow::shapes;
use crate::workflow::times::Times;

/// Workflows of a bulk request.
const BULK: usize = 1_000;
/// How long an idle server is looked at: for each of the workflows that are created.
const IDLE: Duration = Duration::from_micros(100);

/// What was measured of a store with so many names, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Names {
    store: String,
    names: usize,
    created_per_second: Vec<f64>,
    server_us_per_workflow: Vec<f64>,
    redis_us_per_workflow: Vec<f64>,
    page_p50_ms: Vec<f64>,
    page_p99_ms: Vec<f64>,
    idle_commands_per_second: Vec<f64>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Names>> {
    let mut rows = Vec::new();
    for store in ["Redis", "SQLite"] {
        rows.extend([1, arguments.names].map(|names| Names {
            store: store.to_owned(),
            names,
            ..Names::default()
        }));
    }
    for round in 1..=arguments.rounds {
        eprintln!("names, round {round} of {}", arguments.rounds);
        for row in &mut rows {
            row.turn(arguments).await?;
        }
    }
    Ok(rows)
}

/// The body of a request that creates workflows, each with the next name.
struct Bodies {
    names: usize,
    next: usize,
}

impl Bodies {
    fn body(&mut self, count: usize) -> String {
        let first = self.next;
        self.next += count;
        shapes::of_names((first..first + count).map(|at| at % self.names))
    }
}

impl Names {
    async fn turn(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let store = if self.store == "Redis" {
            Store::Redis
        } else {
            Store::Embedded
        };
        let testbed = Testbed::start(&arguments.server, store).await?;
        let mut api = Api::connect(testbed.server.api()).await?;
        let mut bodies = Bodies {
            names: self.names,
            next: 0,
        };
        for _ in 0..self.names.div_ceil(BULK) {
            api.post("/v1/workflows:batch", bodies.body(BULK.min(self.names)))
                .await?;
        }
        self.create(&testbed, &mut api, (&mut bodies, arguments.executed))
            .await?;
        self.pages(&mut api, arguments.pages).await?;
        if store == Store::Redis {
            let (idle, before) = (
                IDLE * arguments.executed as u32,
                testbed.redis_counts().commands,
            );
            sleep(idle).await;
            let commands = testbed.redis_counts().commands - before;
            self.idle_commands_per_second
                .push(commands as f64 / idle.as_secs_f64());
        }
        Ok(())
    }

    /// Creates more workflows with the same names.
    async fn create(
        &mut self,
        testbed: &Testbed,
        api: &mut Api,
        (bodies, count): (&mut Bodies, usize),
    ) -> anyhow::Result<()> {
        let requests: Vec<String> = (0..count.div_ceil(BULK))
            .map(|_| bodies.body(BULK))
            .collect();
        let created = (requests.len() * BULK) as f64;
        let before = testbed.costs()?;
        let start = Instant::now();
        for request in requests {
            api.post("/v1/workflows:batch", request).await?;
        }
        self.created_per_second
            .push(created / start.elapsed().as_secs_f64());
        let spent = testbed.costs()?.since(before);
        self.server_us_per_workflow
            .push(micros(spent.server.total) / created);
        self.redis_us_per_workflow
            .extend(spent.redis.map(|time| micros(time) / created));
        Ok(())
    }

    /// Reads pages of queues, one after the other.
    async fn pages(&mut self, api: &mut Api, count: usize) -> anyhow::Result<()> {
        let mut times = Vec::with_capacity(count);
        let mut path = "/v1/queues?limit=100".to_owned();
        for _ in 0..count {
            let start = Instant::now();
            let page = api.get(&path).await?;
            times.push(start.elapsed().as_secs_f64() * 1_000.0);
            let page: serde_json::Value = serde_json::from_slice(&page)?;
            let items = page["items"].as_array().map_or(0, Vec::len);
            ensure!(items > 0, "no queues: {page}");
            // A server that has no pages gives all queues.
            let next = page["next_cursor"]
                .as_str()
                .map(|next| format!("&cursor={next}"));
            path = format!("/v1/queues?limit=100{}", next.unwrap_or_default());
        }
        let times = Times::new(times);
        self.page_p50_ms.push(times.at(0.5));
        self.page_p99_ms.push(times.at(0.99));
        Ok(())
    }
}

pub(crate) fn sheet(rows: &[Names]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "store",
        "names of queues and workflows",
        "created/s",
        "server CPU, us",
        "Redis CPU, us",
        "page of 100 queues p50, ms",
        "p99, ms",
        "Redis commands/s without work",
    ]);
    for row in rows {
        let spread = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.store.clone(),
            row.names.to_string(),
            spread(&row.created_per_second, 0),
            spread(&row.server_us_per_workflow, 1),
            spread(&row.redis_us_per_workflow, 1),
            spread(&row.page_p50_ms, 2),
            spread(&row.page_p99_ms, 2),
            spread(&row.idle_commands_per_second, 1),
        ]);
    }
    sheet
}
