//! Measures a page of the newest hundred among a thousand workflows and among a million.

use std::time::Instant;

use anyhow::Result;

use super::{ApiClient, graphs};
use crate::figures::{RowFigures, Table, millis};
use crate::machine::{Meter, Store, Testbed};
use crate::scenario::RunOptions;

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Maximum number of workflows on stores that are distant or in a file: they are slow to fill, and
/// larger sizes show nothing new.
const MAX_WORKFLOWS_ON_SLOW_STORE: usize = 10_000;

pub(super) async fn measure(options: &RunOptions, workflows: usize, pages: usize) -> Result<Table> {
    let mut table = Table::new("listing", &["page of 100", "workflows"]);
    for store in [Store::Redis, Store::DelayedRedis, Store::Embedded] {
        let testbed = Testbed::start(&options.program()?, store).await?;
        let mut api = testbed.connect().await?;
        let max = if store == Store::Redis {
            usize::MAX
        } else {
            MAX_WORKFLOWS_ON_SLOW_STORE
        };
        let name = store.workflow_store_name();
        let mut present = 0;
        for size in SIZES.into_iter().filter(|size| *size <= max.min(workflows)) {
            eprintln!("listing {size} workflows on {name}");
            api.create_many(&graphs::pair("manual"), size - present)
                .await?;
            present = size;
            let mut row = table.row(&[&name, &size]);
            read_pages(&testbed, &mut api, &mut row, pages).await?;
        }
    }
    Ok(table)
}

async fn read_pages(
    testbed: &Testbed,
    api: &mut ApiClient,
    row: &mut RowFigures<'_>,
    pages: usize,
) -> Result<()> {
    for (what, filter) in [("newest", ""), ("of a status", "&status=pending")] {
        let path = format!("/v1/workflows?limit=100{filter}");
        api.page_of_hundred(&path).await?;
        let mut times = Vec::with_capacity(pages);
        let mut meter = Meter::start(testbed)?;
        for _ in 0..pages {
            let start = Instant::now();
            api.get(&path).await?;
            times.push(millis(start.elapsed()));
        }
        let reads = meter.read()?.reads;
        let reads = reads.map(|reads| reads as f64 / pages as f64);
        row.add_times(what, &mut times);
        row.add(&format!("{what}, reads at Redis"), 2, reads);
    }
    Ok(())
}
