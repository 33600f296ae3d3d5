//! One workflow with very many jobs: a join of all the others.

use std::time::Instant;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use crate::figures::{Sheet, spread};
use crate::machine::{Store, Testbed};
use crate::workflow::arguments::Arguments;
use crate::workflow::{Api, shapes, work};

/// Looks at the workflow and at a page of its jobs, while it is worked on.
const LOOKS: usize = 20;

/// What was measured of a store, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Large {
    store: String,
    parents: usize,
    created_seconds: Vec<f64>,
    summary_ms: Vec<f64>,
    page_ms: Vec<f64>,
    done_seconds: Vec<f64>,
    server_mib: Vec<f64>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Large>> {
    let parents = arguments.many_parents;
    let row = |store: &str| Large {
        store: store.to_owned(),
        parents,
        ..Large::default()
    };
    let mut rows = ["Redis", "SQLite"].map(row);
    for round in 1..=arguments.rounds {
        eprintln!("large workflows, round {round} of {}", arguments.rounds);
        for (row, store) in rows.iter_mut().zip([Store::Redis, Store::Embedded]) {
            row.turn(&Testbed::start(&arguments.server, store).await?)
                .await?;
        }
    }
    Ok(rows.into())
}

impl Large {
    async fn turn(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        let mut api = Api::connect(testbed.server.api()).await?;
        let body = shapes::join(self.parents);
        let start = Instant::now();
        let created: serde_json::Value =
            serde_json::from_slice(&api.post("/v1/workflows", body).await?)?;
        self.created_seconds.push(start.elapsed().as_secs_f64());
        let path = format!(
            "/v1/workflows/{}",
            created["id"].as_str().unwrap_or_default()
        );
        let looks = [
            (&mut self.summary_ms, path.clone()),
            (&mut self.page_ms, format!("{path}/jobs?limit=100")),
        ];
        for (times, path) in looks {
            let start = Instant::now();
            for _ in 0..LOOKS {
                api.get(&path).await?;
            }
            times.push(start.elapsed().as_secs_f64() * 1_000.0 / LOOKS as f64);
        }
        let took = work(testbed.server.api(), self.parents + 1).await?;
        self.done_seconds.push(took.as_secs_f64());
        self.server_mib
            .push(testbed.server.process().highest_resident_bytes()? as f64 / f64::from(1 << 20));
        let shown = api.json(&path).await?;
        ensure!(
            shown["status"] == "succeeded",
            "the join did not end: {shown}"
        );
        Ok(())
    }
}

pub(crate) fn sheet(rows: &[Large]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "large workflow",
        "parents of a join",
        "created, s",
        "summary, ms",
        "page of 100 jobs, ms",
        "all jobs done, s",
        "server, MiB",
    ]);
    for row in rows {
        let spread = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.store.clone(),
            row.parents.to_string(),
            spread(&row.created_seconds, 2),
            spread(&row.summary_ms, 2),
            spread(&row.page_ms, 2),
            spread(&row.done_seconds, 2),
            spread(&row.server_mib, 0),
        ]);
    }
    sheet
}
