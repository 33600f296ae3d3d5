//! A server with its store, and what can be asked of both.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tempfile::TempDir;
use tidegate_pipeline::test_util::RedisServer;

use crate::delay::DelayProxy;
use crate::machine::Server;
use crate::machine::{Cost, Process};
use crate::workflow::api::{Api, Work, report};

/// Where workflows live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Redis,
    /// Redis, a millisecond away in each direction.
    FarRedis,
    Sqlite,
}

/// A server with its store.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) redis: Option<RedisServer>,
    _proxy: Option<DelayProxy>,
    _folder: TempDir,
}

/// What Redis counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RedisCounts {
    /// Times that Redis read from a socket: each is a round trip of somebody.
    pub(crate) reads: u64,
    pub(crate) commands: u64,
    pub(crate) memory: u64,
}

impl Bench {
    pub(crate) async fn start(program: &Path, backing: Backing) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        let redis = match backing {
            Backing::Sqlite => None,
            Backing::Redis | Backing::FarRedis => Some(RedisServer::start().await),
        };
        let mut environment = Vec::new();
        let mut proxy = None;
        if let Some(redis) = &redis {
            let mut address = redis.address().to_string();
            if backing == Backing::FarRedis {
                let server = ([127, 0, 0, 1], redis.port()).into();
                let far = DelayProxy::start(&[server], Duration::from_millis(1))?;
                address = far.addresses()[0].to_string();
                proxy = Some(far);
            }
            environment.extend([("REDIS_SOCKET_TYPE", "tcp".to_owned()), ("REDIS_URL", address)]);
        }
        let server = Server::start(program, folder.path(), &environment).await?;
        let bench = Self { server, redis, _proxy: proxy, _folder: folder };
        bench.wait_until_open().await?;
        Ok(bench)
    }

    async fn wait_until_open(&self) -> anyhow::Result<()> {
        const LONGEST: Duration = Duration::from_secs(20);
        let start = Instant::now();
        while Api::connect(self.server.api()).await.is_err() {
            anyhow::ensure!(start.elapsed() < LONGEST, "the API did not open within {LONGEST:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    pub(crate) async fn api(&self) -> anyhow::Result<Api> {
        Api::connect(self.server.api()).await
    }

    /// Processor time so far of the server and of Redis.
    pub(crate) fn costs(&self) -> anyhow::Result<(Cost, Option<Duration>)> {
        let redis = self.redis.as_ref().map(|redis| Process(redis.pid()).main_thread_time()).transpose()?;
        Ok((self.server.process().cost()?, redis))
    }

    pub(crate) fn redis_counts(&self) -> RedisCounts {
        let Some(redis) = &self.redis else { return RedisCounts::default() };
        let text = redis.raw("INFO all");
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        RedisCounts {
            reads: number("total_reads_processed"),
            commands: number("total_commands_processed"),
            memory: number("used_memory"),
        }
    }

    /// Works with `connections` workers that take up to `limit` jobs at a time until `jobs` are done. Returns how long it took.
    pub(crate) async fn work(&self, jobs: usize, connections: usize, limit: usize) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let left = std::rc::Rc::new(std::cell::Cell::new(jobs));
        let local = tokio::task::LocalSet::new();
        let mut workers = Vec::new();
        for number in 0..connections {
            let (api, left) = (self.api().await?, left.clone());
            workers.push(local.spawn_local(worker(api, number, limit, left)));
        }
        local
            .run_until(async {
                for worker in workers {
                    worker.await??;
                }
                anyhow::Ok(())
            })
            .await?;
        Ok(start.elapsed())
    }
}

/// Claims, does nothing, reports and claims again until nobody has anything left to do.
async fn worker(
    mut api: Api,
    number: usize,
    limit: usize,
    left: std::rc::Rc<std::cell::Cell<usize>>,
) -> anyhow::Result<()> {
    let wish = format!(r#"{{"queues":["default"],"worker":"w{number}","limit":{limit},"wait":"100ms"}}"#);
    let mut answer = api.post("/v1/jobs/claim", wish.clone()).await?;
    loop {
        let work: Work<'_> = serde_json::from_slice(&answer)?;
        left.set(left.get().saturating_sub(work.jobs.len()));
        if work.jobs.is_empty() && left.get() == 0 {
            return Ok(());
        }
        answer = match work.jobs.is_empty() {
            true => api.post("/v1/jobs/claim", wish.clone()).await?,
            false => api.post("/v1/jobs/report", report(&work, &wish)).await?,
        };
    }
}
