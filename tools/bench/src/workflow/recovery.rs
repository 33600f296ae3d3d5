//! Measures how soon a server that was killed under load serves again, from a file.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::api::claim;
use super::{ApiClient, graphs};
use crate::figures::{RowFigures, Table, millis};
use crate::machine::Server;
use crate::scenario::RunOptions;

/// Number of unfinished workflows when the server is killed.
const UNFINISHED_WORKFLOWS: usize = 10_000;
/// Duration of the load before the kill.
const LOAD_TIME: Duration = Duration::from_millis(500);

pub(super) async fn measure(options: &RunOptions) -> Result<Table> {
    let mut table = Table::new("recovery", &["killed under load"]);
    let program = options.program()?;
    let claim = claim("default", 0, 10, "100ms");
    for _ in options.rounds("recovery") {
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        let data = folder.path();
        fill_and_kill(start(&program, data).await?, &claim).await?;
        let mut row = table.row(&[&"SQLite"]);
        serve_again(&program, data, &claim, &mut row).await?;
        check(&program, data, &mut row)?;
    }
    Ok(table)
}

/// Starts a server with the store in `data`.
async fn start(program: &Path, data: &Path) -> Result<Server> {
    let data = data.display().to_string();
    Server::start(program, &[("TIDEGATE_DATA_DIR", data)]).await
}

/// Measures the time from the start of a server until it lists workflows and hands out jobs.
async fn serve_again(
    program: &Path,
    data: &Path,
    claim: &str,
    row: &mut RowFigures<'_>,
) -> Result<()> {
    let begin = Instant::now();
    let server = start(program, data).await?;
    let mut api = ApiClient::connect(server.api).await?;
    let running = "/v1/workflows?status=running&limit=100";
    api.page_of_hundred(running).await?;
    row.add("until a listing, ms", 0, millis(begin.elapsed()));
    let claimed = api.claim(claim).await?;
    row.add("until a claim, ms", 0, millis(begin.elapsed()));
    ensure!(!claimed.jobs()?.is_empty(), "there is nothing to claim");
    Ok(())
}

/// Leaves a store as a crash during creation and execution does.
async fn fill_and_kill(server: Server, claim: &str) -> Result<()> {
    let mut api = ApiClient::connect(server.api).await?;
    let one = graphs::pair("now");
    api.create_many(&one, UNFINISHED_WORKFLOWS).await?;
    let mut load = JoinSet::new();
    let (mut worker, claim) = (ApiClient::connect(server.api).await?, claim.to_owned());
    load.spawn(async move {
        let mut claimed = worker.claim(&claim).await?;
        loop {
            claimed = worker.report(&claimed.jobs()?, &claim).await?;
        }
    });
    load.spawn(async move {
        loop {
            api.post("/v1/workflows", one.clone()).await?;
        }
    });
    // A task that ends within this time failed: only the kill ends the load.
    if let Ok(Some(ended)) = timeout(LOAD_TIME, load.join_next()).await {
        let ended: Result<()> = ended?;
        ended?;
    }
    drop(server);
    Ok(())
}

/// Runs `tidegate store check` on the store.
fn check(program: &Path, data: &Path, row: &mut RowFigures<'_>) -> Result<()> {
    let start = Instant::now();
    let output = Command::new(program)
        .args(["store", "check", "-o", "json"])
        .env_clear()
        .env("TIDEGATE_DATA_DIR", data)
        .output()
        .context("could not check the store")?;
    row.add("store check, s", 2, start.elapsed().as_secs_f64());
    let error = || String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the check failed: {}", error()))?;
    let workflows = report["workflows"].as_u64();
    let workflows = workflows.context("the check counts no workflows")?;
    row.add("workflows", 0, workflows as f64);
    let findings = report["findings"].as_array();
    let findings = findings.context("the check names no findings")?;
    row.add("findings", 0, findings.len() as f64);
    Ok(())
}
