//! BullMQ under the same load, through `peers/bullmq.mjs`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tidegate_pipeline::test_util::RedisServer;

use super::arguments::Arguments;
use crate::figures::spread;

/// What was measured, once for each turn.
#[derive(Serialize, Deserialize)]
pub(crate) struct BullMq {
    version: String,
    turns: Vec<Turn>,
}

/// What the script prints.
#[derive(Serialize, Deserialize)]
struct Turn {
    workers: u32,
    concurrency: u32,
    serial_per_second: f64,
    bulk_per_second: f64,
    jobs_per_second: f64,
    join_seconds: f64,
}

/// None when BullMQ is not installed.
pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Option<BullMq>> {
    let Some(version) = version(arguments)? else {
        return Ok(None);
    };
    let mut turns = Vec::new();
    for round in 1..=arguments.rounds {
        eprintln!("BullMQ, round {round} of {}", arguments.rounds);
        let redis = RedisServer::start().await;
        turns.push(turn(
            &arguments.peers.join("bullmq.mjs"),
            &redis,
            arguments,
        )?);
    }
    Ok(Some(BullMq { version, turns }))
}

/// Works off as many jobs as were asked for. Returns how many it did in a second, and the version of BullMQ.
pub(crate) async fn work_off(arguments: &Arguments) -> anyhow::Result<(f64, String)> {
    let version = version(arguments)?.context("BullMQ is not installed")?;
    let redis = RedisServer::start().await;
    let turn = turn(&arguments.peers.join("bullmq.mjs"), &redis, arguments)?;
    Ok((turn.jobs_per_second, version))
}

/// The version that is installed.
fn version(arguments: &Arguments) -> anyhow::Result<Option<String>> {
    let package = arguments.peers.join("node_modules/bullmq/package.json");
    let Ok(package) = std::fs::read(&package) else {
        eprintln!(
            "BullMQ is not in {} and left out",
            arguments.peers.display()
        );
        return Ok(None);
    };
    let package: serde_json::Value =
        serde_json::from_slice(&package).context("the package of BullMQ is damaged")?;
    Ok(Some(
        package["version"]
            .as_str()
            .context("the package of BullMQ has no version")?
            .to_owned(),
    ))
}

fn turn(script: &Path, redis: &RedisServer, arguments: &Arguments) -> anyhow::Result<Turn> {
    let sizes = [
        usize::from(redis.port()),
        arguments.executed,
        arguments.parents,
    ]
    .map(|size| size.to_string());
    let output = Command::new("node")
        .arg(script)
        .args(sizes)
        .output()
        .context("could not run node")?;
    ensure!(
        output.status.success(),
        "BullMQ failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("the script of BullMQ printed something else")
}

impl BullMq {
    fn name(&self) -> String {
        let Self { version, turns } = self;
        let workers = turns.first().map_or_else(String::new, |turn| {
            format!(
                ", {} worker of concurrency {}",
                turn.workers, turn.concurrency
            )
        });
        format!("BullMQ {version} on Redis{workers}")
    }

    fn spread(&self, figure: impl Fn(&Turn) -> f64, digits: usize) -> String {
        spread(self.turns.iter().map(figure), digits)
    }

    /// The cells of its row in the table of creation.
    pub(crate) fn creation(&self) -> Vec<String> {
        vec![
            self.name(),
            self.spread(|turn| turn.serial_per_second, 0),
            self.spread(|turn| turn.bulk_per_second, 0),
        ]
    }

    /// The cells of its row in the table of execution.
    pub(crate) fn execution(&self) -> Vec<String> {
        let mut cells = vec![self.name(), self.spread(|turn| turn.jobs_per_second, 0)];
        cells.extend(std::iter::repeat_n("-".to_owned(), 4));
        cells.push(self.spread(|turn| turn.join_seconds, 2));
        cells
    }
}
