//! BullMQ under the same load, through `peers/bullmq.mjs`.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use tidegate_pipeline::test_util::RedisServer;

use super::python::run_script;
use super::{creation, execution};
use crate::figures::Table;
use crate::scenario::RunOptions;

/// The figures of one turn, as the script prints them.
#[derive(Deserialize)]
pub(super) struct BullMq {
    #[serde(default)]
    pub(super) version: String,
    workers: u32,
    concurrency: u32,
    serial_per_second: f64,
    bulk_per_second: f64,
    pub(super) jobs_per_second: f64,
    join_seconds: f64,
}

impl BullMq {
    /// Creates `jobs` workflows, and runs `jobs` jobs and a join. `None` if BullMQ is not
    /// installed.
    pub(super) async fn measure(
        options: &RunOptions,
        jobs: usize,
        parents: usize,
    ) -> anyhow::Result<Option<Self>> {
        let Some(package) = options.peer("BullMQ", "node_modules/bullmq/package.json") else {
            return Ok(None);
        };
        let redis = RedisServer::start().await;
        let mut command = Command::new("node");
        command.arg(options.peers.join("bullmq.mjs"));
        let sizes = [usize::from(redis.port()), jobs, parents].map(|size| size.to_string());
        let mut turn: Self = run_script(command.args(sizes))?;
        turn.version = version(&package)?;
        Ok(Some(turn))
    }

    /// Adds a row to both tables.
    pub(super) fn add_to(&self, creation: &mut Table, execution: &mut Table) {
        let Self {
            version,
            workers,
            concurrency,
            ..
        } = self;
        let name =
            format!("BullMQ {version} on Redis, {workers} worker of concurrency {concurrency}");
        let mut row = creation.row(&[&name]);
        row.add(creation::SERIAL, 0, self.serial_per_second);
        row.add(creation::IN_BULK, 0, self.bulk_per_second);
        let mut row = execution.row(&[&name]);
        row.add(execution::JOBS, 0, self.jobs_per_second);
        row.add(execution::JOIN, 2, self.join_seconds);
    }
}

/// Returns the version in the file of a package.
fn version(package: &Path) -> anyhow::Result<String> {
    let package: Value = serde_json::from_slice(&std::fs::read(package)?)
        .context("the package of BullMQ is damaged")?;
    Ok(package["version"].as_str().unwrap_or("?").to_owned())
}
