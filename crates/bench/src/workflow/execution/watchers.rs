//! What readers of the events of an idle workflow cost others: the same jobs without readers and with them, in turns.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::figures::{Sheet, spread};
use crate::machine::{Store, Testbed};
use crate::workflow::api::Api;
use crate::workflow::arguments::Arguments;
use crate::workflow::shapes;
use crate::workflow::work::work;

/// Readers of one workflow.
const READERS: usize = 1_000;
/// Workflows of one request.
const BULK: usize = 1_000;
/// How long an idle server is looked at.
const IDLE: Duration = Duration::from_secs(2);

/// What was measured with so many readers, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Watchers {
    readers: usize,
    jobs_per_second: Vec<f64>,
    /// At Redis, while there is no work.
    commands_per_second: Vec<f64>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Watchers>> {
    let mut rows = [0, READERS].map(|readers| Watchers { readers, ..Watchers::default() });
    for round in 1..=arguments.rounds {
        eprintln!("watchers, round {round} of {}", arguments.rounds);
        for row in &mut rows {
            row.turn(arguments).await?;
        }
    }
    Ok(rows.into())
}

impl Watchers {
    async fn turn(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let settings = [("TIDEGATE_MAX_EVENT_STREAMS", (8 * READERS).to_string())];
        let testbed = Testbed::start_with(&arguments.server, Store::Redis, &settings).await?;
        let mut api = Api::connect(testbed.server.api()).await?;
        let created = api.post("/v1/workflows", shapes::pair("manual")).await?;
        let created: serde_json::Value = serde_json::from_slice(&created)?;
        let path = format!("/v1/workflows/{}/events", created["id"].as_str().unwrap_or_default());
        let mut readers = JoinSet::new();
        for _ in 0..self.readers {
            read(&testbed, &path, &mut readers).await?;
        }
        let before = testbed.redis_counts().commands;
        sleep(IDLE).await;
        let commands = testbed.redis_counts().commands - before;
        self.commands_per_second.push(commands as f64 / IDLE.as_secs_f64());
        let batches = arguments.executed.div_ceil(BULK);
        for _ in 0..batches {
            api.post("/v1/workflows:batch", shapes::batch(&shapes::pair("now"), BULK)).await?;
        }
        let jobs = batches * BULK * 2;
        let took = work(testbed.server.api(), jobs).await?;
        self.jobs_per_second.push(jobs as f64 / took.as_secs_f64());
        Ok(())
    }
}

/// Begins to read events, and goes on until the tasks are dropped.
async fn read(testbed: &Testbed, path: &str, readers: &mut JoinSet<()>) -> anyhow::Result<()> {
    let address = testbed.server.api();
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
    let mut buffer = [0; 4_096];
    anyhow::ensure!(stream.read(&mut buffer).await? > 0, "no events came");
    anyhow::ensure!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer));
    readers.spawn(async move { while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {} });
    Ok(())
}

pub(crate) fn sheet(rows: &[Watchers]) -> Sheet {
    let mut sheet =
        Sheet::new(&["readers of an idle workflow", "no-op jobs/s elsewhere", "Redis commands/s without work"]);
    for row in rows {
        let figures = |figures: &[f64]| spread(figures.iter().copied(), 0);
        sheet.row(vec![row.readers.to_string(), figures(&row.jobs_per_second), figures(&row.commands_per_second)]);
    }
    sheet
}
