//! Several servers on one Redis, or one cluster: what they cost together, how soon a worker at one of them gets a job that another made
//! ready, and what they ask of Redis when there is nothing to do.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::api::{Api, Work, report};
use super::arguments::Arguments;
use super::shapes;
use super::times::Times;
use super::work::work_at;
use crate::figures::{Sheet, micros, spread};
use crate::machine::{Process, Server};

/// Jobs whose pick-up is timed in a turn.
const PICKED: usize = 300;
/// Workflows of one call.
const BULK: usize = 100;
/// How long idle servers are watched.
const IDLE: Duration = Duration::from_secs(12);

/// What was measured of so many servers, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Servers {
    redis: String,
    servers: usize,
    jobs_per_second: Vec<f64>,
    commands_per_job: Vec<f64>,
    us_per_job: Vec<f64>,
    conflicts_per_job: Vec<f64>,
    picked_p50_ms: Vec<f64>,
    picked_p99_ms: Vec<f64>,
    idle_commands_per_second: Vec<f64>,
    idle_core_percent: Vec<f64>,
}

enum Redis {
    One(Box<RedisServer>),
    Cluster(RedisCluster),
}

/// Servers that know of each other.
pub(super) struct Group {
    redis: Redis,
    servers: Vec<Server>,
    _folder: TempDir,
}

/// What was spent so far, by all together.
#[derive(Clone, Copy)]
struct Spent {
    time: Duration,
    servers: Duration,
    commands: u64,
}

impl Redis {
    fn nodes(&self) -> &[RedisServer] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Cluster(cluster) => cluster.servers(),
        }
    }
}

impl Group {
    pub(super) async fn start(arguments: &Arguments, number: usize) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let redis = match arguments.cluster {
            true => Redis::Cluster(RedisCluster::start(3, 0).await),
            false => Redis::One(Box::new(RedisServer::start().await)),
        };
        let kind = if arguments.cluster {
            "CLUSTER"
        } else {
            "SINGLE"
        };
        let environment = [
            ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
            ("REDIS_URL", redis.nodes()[0].address().to_string()),
            ("REDIS_TYPE", kind.to_owned()),
        ];
        let mut servers = Vec::new();
        for at in 0..number {
            let folder = folder.path().join(at.to_string());
            std::fs::create_dir(&folder)?;
            servers.push(Server::start(&arguments.server, &folder, &environment).await?);
        }
        let group = Self {
            redis,
            servers,
            _folder: folder,
        };
        group.until_known().await?;
        Ok(group)
    }

    /// Until each knows of all. A server of a version that does not say so is given some seconds.
    async fn until_known(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        for server in &self.servers {
            let mut api = Api::connect(server.api()).await?;
            api.json("/v1/queues").await?;
            loop {
                let known = api.json("/v1/status").await?["workflows"]["servers"]
                    .as_array()
                    .map(Vec::len);
                if known.is_none() || known == Some(self.servers.len()) {
                    break;
                }
                ensure!(
                    begin.elapsed() < Duration::from_secs(30),
                    "the servers do not find each other"
                );
                sleep(Duration::from_millis(50)).await;
            }
        }
        sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    pub(super) fn apis(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::api).collect()
    }

    /// Changes that were made again, because another server was first. They are counted every two seconds or so.
    async fn conflicts(&self) -> anyhow::Result<u64> {
        sleep(Duration::from_secs(3)).await;
        let mut conflicts = 0;
        for server in &self.servers {
            let page = Api::connect(server.debug()).await?.get("/metrics").await?;
            let page = String::from_utf8_lossy(&page);
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix("tidegate_workflows_conflicts "));
            conflicts += line
                .and_then(|number| number.parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(conflicts)
    }

    fn spent(&self) -> anyhow::Result<Spent> {
        let mut commands = 0;
        let (mut time, mut servers) = (Duration::ZERO, Duration::ZERO);
        for node in self.redis.nodes() {
            let text = node.raw("INFO all");
            let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
            let number = |text: Option<&str>| -> u64 {
                text.and_then(|text| text.split([',', '\r']).next()?.trim().parse().ok())
                    .unwrap_or(0)
            };
            commands += number(line("total_commands_processed:"));
            time += Process(node.pid()).main_thread_time()?;
        }
        for server in &self.servers {
            servers += server.process().cost()?.total;
        }
        Ok(Spent {
            time: time + servers,
            servers,
            commands,
        })
    }
}

/// All numbers of servers, once for each turn.
pub(crate) async fn measure(
    arguments: &Arguments,
    numbers: &[usize],
) -> anyhow::Result<Vec<Servers>> {
    let redis = if arguments.cluster {
        "cluster of 3"
    } else {
        "one"
    };
    let row = |&servers: &usize| Servers {
        redis: redis.to_owned(),
        servers,
        ..Servers::default()
    };
    let mut rows: Vec<Servers> = numbers.iter().map(row).collect();
    for round in 1..=arguments.rounds {
        for row in &mut rows {
            eprintln!(
                "{} servers, round {round} of {}",
                row.servers, arguments.rounds
            );
            let group = Group::start(arguments, row.servers).await?;
            // Afterwards leases would end that were given before.
            idle(&group, row).await?;
            backlog(&group, row, arguments.executed).await?;
            pick_up(&group, row).await?;
        }
    }
    Ok(rows)
}

/// Workflows that are there before the workers, made at all servers in turn; then workers at all servers.
async fn backlog(group: &Group, row: &mut Servers, workflows: usize) -> anyhow::Result<()> {
    let mut apis = Vec::new();
    for api in group.apis() {
        apis.push(Api::connect(api).await?);
    }
    let created = workflows.div_ceil(BULK) * BULK;
    let before = group.spent()?;
    let body = shapes::batch(&shapes::pair("now"), BULK);
    let number = apis.len();
    for at in 0..created / BULK {
        apis[at % number]
            .post("/v1/workflows:batch", body.clone())
            .await?;
    }
    let jobs = created * 2;
    let took = work_at(&group.apis(), jobs).await?;
    let after = group.spent()?;
    let each = |total: f64| total / jobs as f64;
    row.jobs_per_second.push(jobs as f64 / took.as_secs_f64());
    row.commands_per_job
        .push(each((after.commands - before.commands) as f64));
    row.us_per_job.push(each(micros(after.time - before.time)));
    row.conflicts_per_job
        .push(each(group.conflicts().await? as f64));
    let counts = apis[0].json("/v1/workflows:count?name=bench").await?;
    ensure!(
        counts["by_status"]["succeeded"] == created,
        "not all workflows succeeded: {counts}"
    );
    Ok(())
}

/// A worker waits at one server while another makes a job: the time from the request until the worker has it.
async fn pick_up(group: &Group, row: &mut Servers) -> anyhow::Result<()> {
    let wish = r#"{"queues":["picked"],"worker":"w","limit":1,"wait":"20s"}"#;
    let one =
        r#"{"name":"picked","start":"now","jobs":[{"name":"a","handler":"h","queue":"picked"}]}"#;
    let apis = group.apis();
    let mut milliseconds = Vec::with_capacity(PICKED);
    for at in 0..PICKED {
        let (waits, makes) = (apis[at % apis.len()], apis[(at + 1) % apis.len()]);
        let (mut worker, mut maker) = (Api::connect(waits).await?, Api::connect(makes).await?);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let answer = worker.post("/v1/jobs/claim", wish.to_owned()).await?;
            let had = Instant::now();
            let work: Work<'_> = serde_json::from_slice(&answer)?;
            ensure!(work.jobs.len() == 1, "the worker waited in vain");
            worker
                .post(
                    "/v1/jobs/report",
                    report(&work, r#"{"queues":["none"],"worker":"w"}"#),
                )
                .await?;
            anyhow::Ok(had)
        });
        // The worker waits by now.
        sleep(Duration::from_millis(15)).await;
        let made = Instant::now();
        maker.post("/v1/workflows", one.to_owned()).await?;
        let had = tasks.join_next().await.context("there is one")???;
        milliseconds.push(had.saturating_duration_since(made).as_secs_f64() * 1_000.0);
    }
    let times = Times::new(milliseconds);
    row.picked_p50_ms.push(times.at(0.5));
    row.picked_p99_ms.push(times.at(0.99));
    Ok(())
}

/// Nothing to do, and a worker that waits at each server.
async fn idle(group: &Group, row: &mut Servers) -> anyhow::Result<()> {
    let wish = r#"{"queues":["idle"],"worker":"w","limit":1,"wait":"30s"}"#;
    let mut tasks = JoinSet::new();
    for api in group.apis() {
        let mut worker = Api::connect(api).await?;
        tasks.spawn(async move { worker.post("/v1/jobs/claim", wish.to_owned()).await });
    }
    // Longer than anything lasts that begins with a server.
    sleep(Duration::from_secs(5)).await;
    let (begin, before) = (Instant::now(), group.spent()?);
    sleep(IDLE).await;
    let (seconds, after) = (begin.elapsed().as_secs_f64(), group.spent()?);
    let each = |total: f64| total / seconds / group.servers.len() as f64;
    row.idle_commands_per_second
        .push(each((after.commands - before.commands) as f64));
    row.idle_core_percent
        .push(each(100.0 * (after.servers - before.servers).as_secs_f64()));
    Ok(())
}

pub(crate) fn sheet(rows: &[Servers]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "Redis",
        "servers",
        "no-op jobs/s",
        "Redis commands/job",
        "CPU of all, us/job",
        "conflicts/job",
        "job at another server p50, ms",
        "p99, ms",
        "idle: commands/s and server",
        "core and server, %",
    ]);
    for row in rows {
        let spread = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.redis.clone(),
            row.servers.to_string(),
            spread(&row.jobs_per_second, 0),
            spread(&row.commands_per_job, 2),
            spread(&row.us_per_job, 1),
            spread(&row.conflicts_per_job, 4),
            spread(&row.picked_p50_ms, 2),
            spread(&row.picked_p99_ms, 2),
            spread(&row.idle_commands_per_second, 1),
            spread(&row.idle_core_percent, 3),
        ]);
    }
    sheet
}
