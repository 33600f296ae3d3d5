//! A server with its store.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;
use tidegate_memcache::test_util::MemcachedServer;
use tidegate_pipeline::test_util::RedisServer;

use super::server::Server;
use crate::delay::DelayProxy;

/// Store of the server's counters and workflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Store {
    /// Returns the name of the store of workflows.
    pub(crate) fn of_workflows(self) -> &'static str {
        match self {
            Self::Embedded => "SQLite",
            Self::Redis => "Redis",
            Self::FarRedis => "Redis, 1 ms each way",
            Self::Memory | Self::Memcached => "memory",
        }
    }

    /// Returns the name of the store of counters.
    pub(crate) fn of_counters(self) -> &'static str {
        match self {
            Self::Embedded | Self::Memory => "memory",
            Self::Redis | Self::FarRedis => "Redis",
            Self::Memcached => "memcached",
        }
    }
}

/// A server with a separate store. Dropping it ends both.
pub(crate) struct Testbed {
    pub(crate) server: Server,
    pub(crate) redis: Option<RedisServer>,
    _memcached: Option<MemcachedServer>,
    _proxy: Option<DelayProxy>,
    _folder: TempDir,
}

impl Testbed {
    /// Starts the store and the server, and waits until the server accepts calls on its gRPC port.
    pub(crate) async fn start(program: &Path, store: Store) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        let mut environment = Vec::new();
        let (mut redis, mut proxy, mut memcached) = (None, None, None);
        match store {
            Store::Embedded => {}
            Store::Memory => environment.push(("TIDEGATE_STORE_URL", "memory".to_owned())),
            Store::Memcached => {
                let started = memcached.insert(MemcachedServer::start());
                environment.push(("BACKEND_TYPE", "memcache".to_owned()));
                environment.push(("MEMCACHE_HOST_PORT", started.address().to_string()));
            }
            Store::Redis | Store::FarRedis => {
                let started = redis.insert(RedisServer::start().await);
                let mut address = started.address().to_string();
                if store == Store::FarRedis {
                    let server = ([127, 0, 0, 1], started.port()).into();
                    let far = DelayProxy::start(&[server], Duration::from_millis(1))?;
                    address = far.addresses()[0].to_string();
                    proxy = Some(far);
                }
                environment.push(("REDIS_SOCKET_TYPE", "tcp".to_owned()));
                environment.push(("REDIS_URL", address));
            }
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
}
