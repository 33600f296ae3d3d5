//! How soon a server that was killed under load serves again, from a file.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;

use super::api::{Api, Work, report};
use super::arguments::Arguments;
use super::shapes;
use crate::figures::{Sheet, spread};
use crate::machine::Server;

/// Workflows that are not over when the server is killed.
const UNFINISHED: usize = 10_000;
const BATCH: usize = 1_000;
/// How long there is load before the kill.
const LOAD: Duration = Duration::from_millis(500);
const WISH: &str = r#"{"queues":["default"],"worker":"w","limit":10,"wait":"100ms"}"#;

/// What was measured.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Recovery {
    workflows: u64,
    until_listing_ms: Vec<f64>,
    until_claim_ms: Vec<f64>,
    check_seconds: Vec<f64>,
    findings: usize,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Recovery> {
    let mut recovery = Recovery::default();
    for round in 1..=arguments.rounds {
        eprintln!("recovery, round {round} of {}", arguments.rounds);
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        let data = folder.path().join("data").display().to_string();
        let environment = [("TIDEGATE_DATA_DIR", data.clone())];
        let server = Server::start(&arguments.server, folder.path(), &environment).await?;
        fill_and_kill(server).await?;
        let start = Instant::now();
        let server = Server::start(&arguments.server, folder.path(), &environment).await?;
        let mut api = Api::connect(server.api()).await?;
        let page = api.json("/v1/workflows?status=running&limit=100").await?;
        recovery
            .until_listing_ms
            .push(start.elapsed().as_secs_f64() * 1_000.0);
        let work = api.post("/v1/jobs/claim", WISH.to_owned()).await?;
        recovery
            .until_claim_ms
            .push(start.elapsed().as_secs_f64() * 1_000.0);
        ensure!(
            page["items"]
                .as_array()
                .is_some_and(|items| items.len() == 100),
            "workflows are gone: {page}"
        );
        ensure!(
            !serde_json::from_slice::<Work<'_>>(&work)?.jobs.is_empty(),
            "there is nothing to claim"
        );
        drop(server);
        recovery.check(&arguments.server, &data)?;
    }
    Ok(recovery)
}

/// Leaves a store behind as a crash in the middle of creating and working does.
async fn fill_and_kill(server: Server) -> anyhow::Result<()> {
    let mut api = Api::connect(server.api()).await?;
    let batch = shapes::batch(&shapes::pair("now"), BATCH);
    for _ in 0..UNFINISHED / BATCH {
        api.post("/v1/workflows:batch", batch.clone()).await?;
    }
    let mut load = JoinSet::new();
    let mut worker = Api::connect(server.api()).await?;
    load.spawn(async move {
        let mut answer = worker.post("/v1/jobs/claim", WISH.to_owned()).await?;
        loop {
            let work: Work<'_> = serde_json::from_slice(&answer)?;
            answer = worker.post("/v1/jobs/report", report(&work, WISH)).await?;
        }
    });
    load.spawn(async move {
        let one = shapes::pair("now");
        loop {
            api.post("/v1/workflows", one.clone()).await?;
        }
    });
    // Whoever ends within this time was refused: without a kill nothing ends the load.
    let ended = tokio::time::timeout(LOAD, load.join_next()).await;
    if let Ok(Some(ended)) = ended {
        let ended: anyhow::Result<()> = ended?;
        ended?;
    }
    drop(server);
    Ok(())
}

impl Recovery {
    /// `tidegate store check` over what was left.
    fn check(&mut self, program: &Path, data: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut command = std::process::Command::new(program);
        command
            .args(["store", "check", "-o", "json"])
            .env_clear()
            .env("TIDEGATE_DATA_DIR", data);
        let output = command.output().context("could not check the store")?;
        self.check_seconds.push(start.elapsed().as_secs_f64());
        let said: Value = serde_json::from_slice(&output.stdout).with_context(|| {
            format!(
                "the check failed: {}",
                String::from_utf8_lossy(&output.stderr)
            )
        })?;
        self.findings += said["findings"]
            .as_array()
            .context("the check names no findings")?
            .len();
        self.workflows = said["workflows"]
            .as_u64()
            .context("the check counts no workflows")?;
        Ok(())
    }

    pub(crate) fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new(&[
            "killed under load",
            "workflows",
            "until a listing, ms",
            "until a claim, ms",
            "store check, s",
            "findings",
        ]);
        let spread = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            "SQLite".to_owned(),
            self.workflows.to_string(),
            spread(&self.until_listing_ms, 0),
            spread(&self.until_claim_ms, 0),
            spread(&self.check_seconds, 2),
            self.findings.to_string(),
        ]);
        sheet
    }
}
