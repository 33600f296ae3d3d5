//! How long a page of the newest hundred takes among a thousand workflows and among a million.

use std::fmt;
use std::time::Instant;

use anyhow::ensure;
use serde_json::{Value, json};

use super::api::Api;
use super::{Arguments, Times, shapes};
use crate::figures::Sheet;
use crate::machine::{Store, Testbed};

/// What was measured, by number of workflows.
pub(crate) struct Listing(Vec<Row>);

struct Row {
    store: &'static str,
    workflows: usize,
    newest: Pages,
    by_status: Pages,
}

struct Pages {
    times: Times,
    /// Reads at Redis for a page.
    reads: f64,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Listing> {
    let mut rows = Vec::new();
    let stores = [(Store::Redis, "Redis"), (Store::FarRedis, "Redis, 1 ms each way"), (Store::Embedded, "SQLite")];
    for (store, name) in stores {
        let testbed = Testbed::start(&arguments.server, store).await?;
        let mut api = Api::connect(testbed.server.api()).await?;
        let mut present = 0;
        // What is far away or in a file is slow to fill, and shows nothing new beyond this.
        let most = if store == Store::Redis { arguments.workflows } else { arguments.workflows.min(10_000) };
        for workflows in [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|&size| size <= most) {
            eprintln!("listing {workflows} workflows on {name}");
            fill(&mut api, workflows - present).await?;
            present = workflows;
            let newest = pages(&testbed, &mut api, "/v1/workflows?limit=100", arguments.pages).await?;
            let by_status =
                pages(&testbed, &mut api, "/v1/workflows?limit=100&status=pending", arguments.pages).await?;
            rows.push(Row { store: name, workflows, newest, by_status });
        }
    }
    Ok(Listing(rows))
}

async fn fill(api: &mut Api, mut missing: usize) -> anyhow::Result<()> {
    let pair = shapes::pair("manual");
    while missing > 0 {
        let count = missing.min(1_000);
        api.post("/v1/workflows:batch", shapes::batch(&pair, count)).await?;
        missing -= count;
    }
    Ok(())
}

async fn pages(testbed: &Testbed, api: &mut Api, path: &str, count: usize) -> anyhow::Result<Pages> {
    let page = api.json(path).await?;
    ensure!(page["items"].as_array().is_some_and(|items| items.len() == 100), "not a page of a hundred: {page}");
    let before = testbed.redis_counts();
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        api.get(path).await?;
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    let reads = (testbed.redis_counts().reads - before.reads).saturating_sub(1) as f64 / count as f64;
    Ok(Pages { times: Times::new(times), reads })
}

impl Listing {
    pub(crate) fn to_json(&self) -> Value {
        let pages = |pages: &Pages| json!({ "p50_ms": pages.times.at(0.5), "p99_ms": pages.times.at(0.99), "reads": pages.reads });
        let row = |row: &Row| json!({ "store": row.store, "workflows": row.workflows, "newest": pages(&row.newest), "by_status": pages(&row.by_status) });
        self.0.iter().map(row).collect()
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = [
            "page of 100",
            "workflows",
            "newest p50, p99, ms",
            "reads at Redis",
            "of a status p50, p99, ms",
            "reads at Redis",
        ];
        let mut sheet = Sheet::new(&heads);
        for row in &self.0 {
            let times = |pages: &Pages| format!("{:.2}, {:.2}", pages.times.at(0.5), pages.times.at(0.99));
            let reads = |pages: &Pages| format!("{:.2}", pages.reads);
            sheet.row(vec![
                row.store.to_owned(),
                row.workflows.to_string(),
                times(&row.newest),
                reads(&row.newest),
                times(&row.by_status),
                reads(&row.by_status),
            ]);
        }
        sheet.row(["Gush 5.0", "10000", "30-80"].map(str::to_owned).to_vec());
        write!(f, "{sheet}")
    }
}
