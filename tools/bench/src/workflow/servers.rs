//! Measures several servers on one Redis: their total cost, how soon a worker at one of them gets a
//! job that another made ready, and their commands to Redis while idle.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tidegate_pipeline::test_util::RedisServer;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::api::claim;
use super::{ApiClient, graphs, run_all_jobs};
use crate::figures::{RowFigures, Table, micros, millis};
use crate::machine::{Process, Server, info};
use crate::scenario::RunOptions;

/// Number of jobs whose pick-up is timed in a turn.
const TIMED_JOBS: usize = 300;
/// Number of workflows of one call.
const WORKFLOWS_PER_REQUEST: usize = 100;
/// Connections that create a backlog at one server, and the number of workflows of one of their
/// calls: few, so that the server may keep them in its own partitions.
const BACKLOG_CONNECTIONS: usize = 16;
const BACKLOG_BATCH: usize = 8;
/// Duration of the measurement of idle servers.
const IDLE_TIME: Duration = Duration::from_secs(12);
/// Maximum wait until the servers know each other.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Servers that know each other.
struct ServerGroup {
    redis: RedisServer,
    servers: Vec<Server>,
    /// Conflicts of all servers when they were last read.
    last_conflicts: Cell<f64>,
}

/// The total cost of all servers so far.
struct GroupTotals {
    redis: Duration,
    servers: Duration,
    commands: u64,
}

/// Measures all numbers of servers, once for each round.
pub(super) async fn measure(
    options: &RunOptions,
    numbers: &[usize],
    workflows: usize,
) -> Result<Vec<Table>> {
    let mut table = Table::new("servers", &["servers"]);
    let mut backlog = Table::new("backlog", &["servers", "workers"]);
    let program = options.program()?;
    for _ in options.rounds("servers") {
        for number in numbers {
            eprintln!("{number} servers");
            let group = ServerGroup::start(&program, *number).await?;
            let mut row = table.row(&[number]);
            // The idle servers are first, because leases of the work would end while they are
            // measured.
            let idle = group.idle().await?;
            group.work(&mut row, workflows).await?;
            group.pick_up(&mut row).await?;
            if *number > 1 {
                let apis = group.apis();
                let last = &apis[number - 1..];
                let mut row = backlog.row(&[number, &"at another server"]);
                group.work_off_backlog(&mut row, workflows, last).await?;
                let mut row = backlog.row(&[number, &"at all"]);
                group.work_off_backlog(&mut row, workflows, &apis).await?;
            }
            let each = |total: f64| total / IDLE_TIME.as_secs_f64() / *number as f64;
            row.add("idle: commands/s and server", 1, each(idle.commands as f64));
            let core_percent = each(100.0 * idle.servers.as_secs_f64());
            row.add("core and server, %", 3, core_percent);
        }
    }
    Ok(vec![table, backlog])
}

impl ServerGroup {
    async fn start(program: &Path, number: usize) -> Result<Self> {
        let redis = RedisServer::start().await;
        let environment = [
            ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
            ("REDIS_URL", redis.address().to_string()),
        ];
        let mut servers = Vec::new();
        for _ in 0..number {
            servers.push(Server::start(program, &environment).await?);
        }
        let group = Self {
            redis,
            servers,
            last_conflicts: Cell::default(),
        };
        group.wait_until_discovered().await?;
        Ok(group)
    }

    /// Waits until each server knows all others.
    async fn wait_until_discovered(&self) -> Result<()> {
        let begin = Instant::now();
        for server in &self.servers {
            let mut api = ApiClient::connect(server.api).await?;
            api.json("/v1/queues").await?;
            loop {
                let status = api.json("/v1/status").await?;
                let known = status["workflows"]["servers"].as_array().map(Vec::len);
                if known == Some(self.servers.len()) {
                    break;
                }
                ensure!(
                    begin.elapsed() < DISCOVERY_TIMEOUT,
                    "the servers do not find each other"
                );
                sleep(Duration::from_millis(50)).await;
            }
        }
        sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    fn apis(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.api).collect()
    }

    fn totals(&self) -> Result<GroupTotals> {
        let costs = self.servers.iter().map(|server| server.process().cost());
        let servers = costs.map(|cost| Ok(cost?.total));
        Ok(GroupTotals {
            redis: Process(self.redis.pid()).main_thread_time()?,
            servers: servers.sum::<Result<_>>()?,
            commands: info(&self.redis.raw("INFO all"), "total_commands_processed"),
        })
    }

    /// Measures idle servers, each with a waiting worker.
    async fn idle(&self) -> Result<GroupTotals> {
        let mut tasks = JoinSet::new();
        for api in self.apis() {
            let mut worker = ApiClient::connect(api).await?;
            tasks.spawn(async move { worker.claim(&claim("idle", 0, 1, "30s")).await });
        }
        // Longer than any activity at the start of a server.
        sleep(Duration::from_secs(5)).await;
        let before = self.totals()?;
        sleep(IDLE_TIME).await;
        Ok(self.totals()?.since(before))
    }

    /// Measures workflows that exist before the workers, created at all servers in rotation; then
    /// workers at all servers.
    async fn work(&self, row: &mut RowFigures<'_>, workflows: usize) -> Result<()> {
        let mut apis = Vec::new();
        for api in self.apis() {
            apis.push(ApiClient::connect(api).await?);
        }
        let number = apis.len();
        let count = workflows.next_multiple_of(WORKFLOWS_PER_REQUEST);
        let before = self.totals()?;
        for at in 0..count / WORKFLOWS_PER_REQUEST {
            let api = &mut apis[at % number];
            api.create_many(&graphs::pair("now"), WORKFLOWS_PER_REQUEST)
                .await?;
        }
        self.run_jobs(row, count * 2, &self.apis(), before).await?;
        apis[0].check_succeeded("bench", count).await
    }

    /// Measures workers of which most are at other servers than the one that made all jobs.
    async fn work_off_backlog(
        &self,
        row: &mut RowFigures<'_>,
        workflows: usize,
        workers_at: &[SocketAddr],
    ) -> Result<()> {
        let calls = workflows.div_ceil(BACKLOG_CONNECTIONS * BACKLOG_BATCH);
        let mut tasks = JoinSet::new();
        for _ in 0..BACKLOG_CONNECTIONS {
            let mut api = ApiClient::connect(self.servers[0].api).await?;
            tasks.spawn(async move {
                for _ in 0..calls {
                    api.create_many(&graphs::pair("now"), BACKLOG_BATCH).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        let jobs = 2 * calls * BACKLOG_CONNECTIONS * BACKLOG_BATCH;
        self.run_jobs(row, jobs, workers_at, self.totals()?).await
    }

    /// Runs workers at these servers until they have done all jobs.
    async fn run_jobs(
        &self,
        row: &mut RowFigures<'_>,
        jobs: usize,
        workers_at: &[SocketAddr],
        before: GroupTotals,
    ) -> Result<()> {
        let conflicts = self.last_conflicts.get();
        let took = run_all_jobs(workers_at, jobs).await?;
        let jobs = jobs as f64;
        let spent = self.totals()?.since(before);
        row.add("no-op jobs/s", 0, jobs / took.as_secs_f64());
        row.add("Redis commands/job", 2, spent.commands as f64 / jobs);
        let micros = micros(spent.redis + spent.servers);
        row.add("CPU of all, us/job", 1, micros / jobs);
        let all = self.conflicts().await?;
        self.last_conflicts.set(all);
        row.add("conflicts/job", 4, (all - conflicts) / jobs);
        Ok(())
    }

    /// Returns the number of changes that were repeated because another server was first. The
    /// servers count them about every two seconds.
    async fn conflicts(&self) -> Result<f64> {
        sleep(Duration::from_secs(3)).await;
        let mut conflicts = 0.0;
        for server in &self.servers {
            let page = ApiClient::connect(server.debug)
                .await?
                .get("/metrics")
                .await?;
            let page = String::from_utf8_lossy(&page);
            let number = |line: &str| {
                line.strip_prefix("tidegate_workflows_conflicts ")?
                    .parse()
                    .ok()
            };
            conflicts += page.lines().find_map(number).unwrap_or(0.0);
        }
        Ok(conflicts)
    }

    /// Measures the time from a request at one server until a worker that waits at another has the
    /// job.
    async fn pick_up(&self, row: &mut RowFigures<'_>) -> Result<()> {
        let apis = self.apis();
        let mut times = Vec::with_capacity(TIMED_JOBS);
        for at in 0..TIMED_JOBS {
            let waits = ApiClient::connect(apis[at % apis.len()]).await?;
            let makes = ApiClient::connect(apis[(at + 1) % apis.len()]).await?;
            times.push(millis(pick_up_time(waits, makes).await?));
        }
        row.add_times("job at another server", &mut times);
        Ok(())
    }
}

/// Returns the time from the creation of a job by `maker` to its claim by `worker`.
async fn pick_up_time(mut worker: ApiClient, mut maker: ApiClient) -> Result<Duration> {
    let one =
        r#"{"name":"picked","start":"now","jobs":[{"name":"a","handler":"h","queue":"picked"}]}"#;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let claimed = worker.claim(&claim("picked", 0, 1, "20s")).await?;
        let at = Instant::now();
        worker.report(&claimed.job()?, "null").await?;
        anyhow::Ok(at)
    });
    // The worker waits by now.
    sleep(Duration::from_millis(15)).await;
    let made = Instant::now();
    maker.post("/v1/workflows", one.to_owned()).await?;
    let claimed = tasks.join_next().await.context("there is one")???;
    Ok(claimed.saturating_duration_since(made))
}

impl GroupTotals {
    fn since(self, earlier: Self) -> Self {
        Self {
            redis: self.redis - earlier.redis,
            servers: self.servers - earlier.servers,
            commands: self.commands - earlier.commands,
        }
    }
}
