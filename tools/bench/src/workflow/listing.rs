//! How long a page of the newest hundred takes among a thousand workflows and among a million.

use std::time::Instant;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::api::Api;
use super::arguments::Arguments;
use super::shapes;
use super::times::Times;
use crate::figures::Sheet;
use crate::machine::{Store, Testbed};

/// What was measured of a store with so many workflows.
#[derive(Serialize, Deserialize)]
pub(crate) struct Listing {
    store: String,
    workflows: usize,
    newest: Pages,
    by_status: Pages,
}

/// Times of all pages of one kind.
#[derive(Serialize, Deserialize)]
struct Pages {
    p50_ms: f64,
    p99_ms: f64,
    reads: f64,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Listing>> {
    let mut rows = Vec::new();
    let stores = [
        (Store::Redis, "Redis"),
        (Store::FarRedis, "Redis, 1 ms each way"),
        (Store::Embedded, "SQLite"),
    ];
    for (store, name) in stores {
        let testbed = Testbed::start(&arguments.server, store).await?;
        let mut api = Api::connect(testbed.server.api()).await?;
        let mut present = 0;
        // What is far away or in a file is slow to fill, and shows nothing new beyond this.
        let most = if store == Store::Redis {
            arguments.workflows
        } else {
            arguments.workflows.min(10_000)
        };
        for workflows in [1_000, 10_000, 100_000, 1_000_000]
            .into_iter()
            .filter(|&size| size <= most)
        {
            eprintln!("listing {workflows} workflows on {name}");
            fill(&mut api, workflows - present).await?;
            present = workflows;
            let newest = pages(
                &testbed,
                &mut api,
                "/v1/workflows?limit=100",
                arguments.pages,
            )
            .await?;
            let by_status = pages(
                &testbed,
                &mut api,
                "/v1/workflows?limit=100&status=pending",
                arguments.pages,
            )
            .await?;
            rows.push(Listing {
                store: name.to_owned(),
                workflows,
                newest,
                by_status,
            });
        }
    }
    Ok(rows)
}

async fn fill(api: &mut Api, mut missing: usize) -> anyhow::Result<()> {
    let pair = shapes::pair("manual");
    while missing > 0 {
        let count = missing.min(1_000);
        api.post("/v1/workflows:batch", shapes::batch(&pair, count))
            .await?;
        missing -= count;
    }
    Ok(())
}

async fn pages(
    testbed: &Testbed,
    api: &mut Api,
    path: &str,
    count: usize,
) -> anyhow::Result<Pages> {
    let page = api.json(path).await?;
    ensure!(
        page["items"]
            .as_array()
            .is_some_and(|items| items.len() == 100),
        "not a page of a hundred: {page}"
    );
    let before = testbed.redis_counts();
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        api.get(path).await?;
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    let reads =
        (testbed.redis_counts().reads - before.reads).saturating_sub(1) as f64 / count as f64;
    let times = Times::new(times);
    Ok(Pages {
        p50_ms: times.at(0.5),
        p99_ms: times.at(0.99),
        reads,
    })
}

pub(crate) fn sheet(rows: &[Listing]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "page of 100",
        "workflows",
        "newest p50, p99, ms",
        "reads at Redis",
        "of a status p50, p99, ms",
        "reads at Redis",
    ]);
    for row in rows {
        let times = |pages: &Pages| format!("{:.2}, {:.2}", pages.p50_ms, pages.p99_ms);
        let reads = |pages: &Pages| format!("{:.2}", pages.reads);
        sheet.row(vec![
            row.store.clone(),
            row.workflows.to_string(),
            times(&row.newest),
            reads(&row.newest),
            times(&row.by_status),
            reads(&row.by_status),
        ]);
    }
    sheet
}
