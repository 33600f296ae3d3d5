//! What readers of the events of one workflow cost others: the same jobs without readers and with them, in turns.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::figures::{Sheet, spread};
use crate::machine::{Store, Testbed};
use crate::workflow::api::{Api, Job, Work};
use crate::workflow::arguments::Arguments;
use crate::workflow::shapes;
use crate::workflow::times::Times;
use crate::workflow::work::work;

/// Readers of one workflow.
const READERS: usize = 1_000;
/// Readers of a large one, each of whom is told of thousands of jobs.
const READERS_OF_LARGE: usize = 256;
/// Jobs of a workflow that changes.
const JOBS: usize = 20;
/// Workflows of one request.
const BULK: usize = 1_000;
/// How long a server without other work is looked at.
const IDLE: Duration = Duration::from_secs(2);
/// The wait between two changes, of some jobs each.
const CHANGE: Duration = Duration::from_millis(10);
/// The wait between two calls whose time is taken.
const CALL: Duration = Duration::from_millis(5);

/// What was measured with so many readers, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Watchers {
    /// None: the workflow that is watched does not change.
    #[serde(default)]
    changing_jobs: Option<usize>,
    readers: usize,
    jobs_per_second: Vec<f64>,
    /// At Redis, while there is no other work.
    commands_per_second: Vec<f64>,
    /// Calls about a small workflow, during the work.
    #[serde(default)]
    call_p99_ms: Vec<f64>,
    #[serde(default)]
    longest_call_ms: Vec<f64>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Watchers>> {
    let kinds = [
        (None, READERS),
        (Some(JOBS), READERS),
        (Some(arguments.many_parents), READERS_OF_LARGE),
    ];
    let row = |(changing_jobs, readers)| Watchers {
        changing_jobs,
        readers,
        ..Watchers::default()
    };
    let mut rows: Vec<Watchers> = kinds
        .into_iter()
        .flat_map(|(kind, most)| [(kind, 0), (kind, most)])
        .map(row)
        .collect();
    for round in 1..=arguments.rounds {
        eprintln!("watchers, round {round} of {}", arguments.rounds);
        for row in &mut rows {
            row.turn(arguments).await?;
        }
    }
    Ok(rows)
}

impl Watchers {
    async fn turn(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let settings = [("TIDEGATE_MAX_EVENT_STREAMS", (8 * READERS).to_string())];
        let testbed = Testbed::start_with(&arguments.server, Store::Redis, &settings).await?;
        let (address, mut tasks) = (testbed.server.api(), JoinSet::new());
        let mut api = Api::connect(address).await?;
        let small = created(&mut api, shapes::pair("manual")).await?;
        let watched = match self.changing_jobs {
            Some(jobs) => created(&mut api, shapes::watched(jobs)).await?,
            None => small.clone(),
        };
        if self.changing_jobs.is_some() {
            tasks.spawn(change(Api::connect(address).await?));
        }
        for _ in 0..self.readers {
            tasks.spawn(read(events(address, &watched).await?));
        }
        let before = testbed.redis_counts().commands;
        sleep(IDLE).await;
        let commands = testbed.redis_counts().commands - before;
        self.commands_per_second
            .push(commands as f64 / IDLE.as_secs_f64());
        // To open many readers of a large workflow may take longer than the server keeps a connection without requests.
        let mut api = Api::connect(address).await?;
        let batches = arguments.executed.div_ceil(BULK);
        for _ in 0..batches {
            api.post(
                "/v1/workflows:batch",
                shapes::batch(&shapes::pair("now"), BULK),
            )
            .await?;
        }
        let jobs = batches * BULK * 2;
        let mut caller = Api::connect(address).await?;
        let mut times = Vec::new();
        let took = tokio::select! {
            took = work(address, jobs) => took?,
            failed = calls(&mut caller, &small, &mut times) => failed?,
            Some(failed) = tasks.join_next() => failed??,
        };
        self.jobs_per_second.push(jobs as f64 / took.as_secs_f64());
        let times = Times::new(times);
        self.call_p99_ms.push(times.at(0.99));
        self.longest_call_ms.push(times.at(1.0));
        Ok(())
    }
}

/// Creates a workflow. Returns its path.
async fn created(api: &mut Api, body: String) -> anyhow::Result<String> {
    let created: serde_json::Value =
        serde_json::from_slice(&api.post("/v1/workflows", body).await?)?;
    Ok(format!(
        "/v1/workflows/{}",
        created["id"].as_str().unwrap_or_default()
    ))
}

/// Opens a stream of events.
async fn events(address: SocketAddr, workflow: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET {workflow}/events HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())
        .await?;
    let mut buffer = [0; 4_096];
    ensure!(stream.read(&mut buffer).await? > 0, "no events came");
    ensure!(
        buffer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&buffer)
    );
    Ok(stream)
}

/// Reads events until the task is dropped.
async fn read(mut stream: TcpStream) -> anyhow::Result<Duration> {
    let mut buffer = vec![0; 64 << 10];
    while stream.read(&mut buffer).await? > 0 {}
    bail!("a stream of events ended");
}

/// Takes jobs of the watched workflow and gives them back, until the task is dropped.
async fn change(mut api: Api) -> anyhow::Result<Duration> {
    let wish = r#"{"queues":["watched"],"worker":"w","limit":10}"#;
    loop {
        let answer = api.post("/v1/jobs/claim", wish.to_owned()).await?;
        let work: Work<'_> = serde_json::from_slice(&answer)?;
        let given_back =
            |job: &Job<'_>| format!(r#"{{"lease":"{}","outcome":"given_back"}}"#, job.lease);
        let reports: Vec<String> = work.jobs.iter().map(given_back).collect();
        ensure!(!reports.is_empty(), "the watched workflow has no ready job");
        sleep(CHANGE).await;
        api.post(
            "/v1/jobs/report",
            format!(r#"{{"reports":[{}]}}"#, reports.join(",")),
        )
        .await?;
    }
}

/// Asks for a small workflow again and again, and takes the times in milliseconds.
async fn calls(api: &mut Api, workflow: &str, times: &mut Vec<f64>) -> anyhow::Result<Duration> {
    loop {
        let start = Instant::now();
        api.get(workflow).await?;
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
        sleep(CALL).await;
    }
}

pub(crate) fn sheet(rows: &[Watchers]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "watched workflow",
        "readers of its events",
        "no-op jobs/s elsewhere",
        "Redis commands/s without work",
        "call elsewhere p99, ms",
        "longest, ms",
    ]);
    for row in rows {
        let figures = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.changing_jobs
                .map_or_else(|| "idle".to_owned(), |jobs| format!("{jobs} jobs, changes")),
            row.readers.to_string(),
            figures(&row.jobs_per_second, 0),
            figures(&row.commands_per_second, 0),
            figures(&row.call_p99_ms, 1),
            figures(&row.longest_call_ms, 1),
        ]);
    }
    sheet
}
