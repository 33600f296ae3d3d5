//! A server with its store, and what can be asked of both.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tidegate_memcache::test_util::MemcachedServer;
use tidegate_pipeline::test_util::RedisServer;

use super::process::{Cost, Process};
use super::server::Server;
use crate::delay::DelayProxy;

/// Where the server keeps what it must remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Store {
    /// Counters in the server's memory, workflows in a SQLite file.
    Embedded,
    /// Counters and workflows in the server's memory.
    Memory,
    Redis,
    /// Redis, a millisecond away in each direction.
    FarRedis,
    /// Counters in memcached.
    Memcached,
}

/// A server with a store of its own. Both end when it is dropped.
pub(crate) struct Testbed {
    pub(crate) server: Server,
    pub(crate) redis: Option<RedisServer>,
    _memcached: Option<MemcachedServer>,
    _proxy: Option<DelayProxy>,
    _folder: TempDir,
}

/// Processor time so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) server: Cost,
    /// Of Redis's main thread, which runs all commands.
    pub(crate) redis: Option<Duration>,
}

/// What Redis counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RedisCounts {
    /// Times that Redis read from a socket: each is a round trip of somebody.
    pub(crate) reads: u64,
    pub(crate) commands: u64,
    pub(crate) memory: u64,
}

impl Testbed {
    /// Starts the store and the server, and waits until the server accepts calls on its gRPC port.
    pub(crate) async fn start(program: &Path, store: Store) -> anyhow::Result<Self> {
        Self::start_with(program, store, &[]).await
    }

    /// The same with more settings.
    pub(crate) async fn start_with(
        program: &Path,
        store: Store,
        settings: &[(&'static str, String)],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        let redis = match store {
            Store::Embedded | Store::Memory | Store::Memcached => None,
            Store::Redis | Store::FarRedis => Some(RedisServer::start().await),
        };
        let mut environment = settings.to_vec();
        let mut proxy = None;
        if let Some(redis) = &redis {
            let mut address = redis.address().to_string();
            if store == Store::FarRedis {
                let server = ([127, 0, 0, 1], redis.port()).into();
                let far = DelayProxy::start(&[server], Duration::from_millis(1))?;
                address = far.addresses()[0].to_string();
                proxy = Some(far);
            }
            environment.extend([
                ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
                ("REDIS_URL", address),
            ]);
        }
        if store == Store::Memory {
            environment.push(("TIDEGATE_STORE_URL", "memory".to_owned()));
        }
        let memcached = (store == Store::Memcached).then(MemcachedServer::start);
        if let Some(memcached) = &memcached {
            let address = memcached.address().to_string();
            environment.extend([
                ("BACKEND_TYPE", "memcache".to_owned()),
                ("MEMCACHE_HOST_PORT", address),
            ]);
        }
        let server = Server::start(program, folder.path(), &environment).await?;
        Ok(Self {
            server,
            redis,
            _memcached: memcached,
            _proxy: proxy,
            _folder: folder,
        })
    }

    pub(crate) fn costs(&self) -> anyhow::Result<Costs> {
        let redis = self
            .redis
            .as_ref()
            .map(|redis| Process(redis.pid()).main_thread_time())
            .transpose()?;
        Ok(Costs {
            server: self.server.process().cost()?,
            redis,
        })
    }

    /// Zeros without Redis.
    pub(crate) fn redis_counts(&self) -> RedisCounts {
        let Some(redis) = &self.redis else {
            return RedisCounts::default();
        };
        let text = redis.raw("INFO all");
        let number = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse().ok())
                .unwrap_or(0)
        };
        RedisCounts {
            reads: number("total_reads_processed"),
            commands: number("total_commands_processed"),
            memory: number("used_memory"),
        }
    }
}

impl Costs {
    /// What was spent since an earlier moment.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let redis = self
            .redis
            .zip(earlier.redis)
            .map(|(now, before)| now.saturating_sub(before));
        Self {
            server: self.server - earlier.server,
            redis,
        }
    }
}
