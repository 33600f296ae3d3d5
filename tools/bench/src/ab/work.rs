//! The units of work that two builds are compared by, and the measurement of one turn.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::compare::{KEYS, Traffic};
use crate::figures::Table;
use crate::machine::{Meter, Store, Testbed};
use crate::workflow::{ApiClient, graphs};

/// Number of two-job workflows that are created and executed for each second of a turn.
const WORKFLOWS_PER_SECOND: f64 = 10_000.0;
/// Number of workflows of one request.
const WORKFLOWS_PER_REQUEST: usize = 1_000;

/// Work that is measured on a separate server.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Decisions on requests of this number of descriptors.
    Decisions(Store, u16),
    /// Creates, executes and lists workflows.
    Workflows(Store),
}

pub(super) const WORKS: [Work; 6] = [
    Work::Decisions(Store::Embedded, 1),
    Work::Decisions(Store::Embedded, 10),
    Work::Decisions(Store::Redis, 1),
    Work::Decisions(Store::Redis, 10),
    Work::Workflows(Store::Redis),
    Work::Workflows(Store::Embedded),
];

/// Head of the figure where more is better.
pub(super) const RATE_HEAD: &str = "a second";

impl Work {
    pub(super) fn name(self) -> String {
        match self {
            Self::Decisions(store, descriptors) => {
                format!("decisions, {}, {descriptors}", store.counter_store_name())
            }
            Self::Workflows(store) => format!("workflows, {}", store.workflow_store_name()),
        }
    }

    /// Measures one build for a turn, and adds a row for each unit of the work.
    pub(super) async fn turn(
        self,
        program: &Path,
        time: Duration,
        table: &mut Table,
    ) -> Result<()> {
        match self {
            Self::Decisions(store, descriptors) => {
                let testbed = Testbed::start(program, store).await?;
                let turn = Traffic::H2load
                    .turn(&testbed, descriptors, KEYS, time)
                    .await?;
                let unit = format!("decision, {}, {descriptors}", store.counter_store_name());
                let mut row = table.row(&[&unit]);
                row.add(RATE_HEAD, 0, turn.per_second);
                turn.spent.add_to(&mut row, "unit", turn.count);
                Ok(())
            }
            Self::Workflows(store) => {
                let testbed = Testbed::start(program, store).await?;
                workflows(&testbed, store.workflow_store_name(), time, table).await
            }
        }
    }
}

async fn workflows(
    testbed: &Testbed,
    store: &str,
    time: Duration,
    table: &mut Table,
) -> Result<()> {
    let mut api = testbed.connect().await?;
    // The first request registers the workflow's name.
    let unstarted = graphs::pair("manual");
    api.create_many(&unstarted, WORKFLOWS_PER_REQUEST).await?;
    let workflows = (time.as_secs_f64() * WORKFLOWS_PER_SECOND).ceil() as usize;
    let workflows = workflows.next_multiple_of(WORKFLOWS_PER_REQUEST);
    let mut meter = Meter::start(testbed)?;
    let mut read = |unit: &str, count: usize| {
        let spent = meter.read()?;
        let mut row = table.row(&[&format!("{unit}, {store}")]);
        row.add(RATE_HEAD, 0, count as f64 / spent.elapsed.as_secs_f64());
        spent.add_to(&mut row, "unit", count as u64);
        anyhow::Ok(())
    };
    api.create_many(&graphs::pair("now"), workflows).await?;
    read("workflow created", workflows)?;
    testbed.run_all_jobs(workflows * 2).await?;
    read("job", workflows * 2)?;
    let pages = read_pages(&mut api, time).await?;
    read("page of 100", pages)
}

/// Reads pages for `time` and returns their number.
async fn read_pages(api: &mut ApiClient, time: Duration) -> Result<usize> {
    let start = Instant::now();
    let mut pages = 0;
    while pages == 0 || start.elapsed() < time {
        let page = api.get("/v1/workflows?limit=100").await?;
        ensure!(page.len() > 100 * 50, "not a page of a hundred");
        pages += 1;
    }
    Ok(pages)
}
