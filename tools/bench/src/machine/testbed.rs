//! A server with its store.

use std::path::Path;
use std::time::Duration;

use tidegate_memcache::test_util::MemcachedServer;
use tidegate_pipeline::test_util::RedisServer;

use super::server::Server;
use crate::delay::DelayProxy;

/// Store of the server's counters and workflows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// Counters in the server's memory, workflows in a SQLite file.
    Embedded,
    /// Counters and workflows in the server's memory.
    Memory,
    Redis,
    /// Redis, a millisecond away in each direction.
    DelayedRedis,
    /// Counters in memcached.
    Memcached,
}

impl Store {
    /// Returns the name of the store of workflows.
    pub(crate) fn workflow_store_name(self) -> &'static str {
        match self {
            Self::Embedded => "SQLite",
            Self::Redis => "Redis",
            Self::DelayedRedis => "Redis, 1 ms each way",
            Self::Memory | Self::Memcached => "memory",
        }
    }

    /// Returns the name of the store of counters.
    pub(crate) fn counter_store_name(self) -> &'static str {
        match self {
            Self::Embedded | Self::Memory => "memory",
            Self::Redis | Self::DelayedRedis => "Redis",
            Self::Memcached => "memcached",
        }
    }
}

/// A server with a separate store. Dropping it ends both.
pub(crate) struct Testbed {
    pub(crate) server: Server,
    store: StoreProcesses,
}

/// The processes of a store, and the settings of a server that uses it.
#[derive(Default)]
struct StoreProcesses {
    redis: Option<RedisServer>,
    memcached: Option<MemcachedServer>,
    proxy: Option<DelayProxy>,
    environment: Vec<(&'static str, String)>,
}

impl Testbed {
    /// Starts the store and the server, and waits until the server accepts calls on its gRPC port.
    pub(crate) async fn start(program: &Path, store: Store) -> anyhow::Result<Self> {
        let store = StoreProcesses::start(store).await?;
        let server = Server::start(program, &store.environment).await?;
        Ok(Self { server, store })
    }

    pub(crate) fn redis(&self) -> Option<&RedisServer> {
        self.store.redis.as_ref()
    }
}

impl StoreProcesses {
    async fn start(store: Store) -> anyhow::Result<Self> {
        let mut started = Self::default();
        match store {
            Store::Embedded => {}
            Store::Memory => started.set("TIDEGATE_STORE_URL", "memory"),
            Store::Memcached => {
                let memcached = MemcachedServer::start();
                started.set("BACKEND_TYPE", "memcache");
                started.set("MEMCACHE_HOST_PORT", memcached.address());
                started.memcached = Some(memcached);
            }
            Store::Redis | Store::DelayedRedis => {
                let redis = RedisServer::start().await;
                started.set("REDIS_SOCKET_TYPE", "tcp");
                if store == Store::DelayedRedis {
                    let server = ([127, 0, 0, 1], redis.port()).into();
                    let far = DelayProxy::start(&[server], Duration::from_millis(1))?;
                    started.set("REDIS_URL", far.addresses[0]);
                    started.proxy = Some(far);
                } else {
                    started.set("REDIS_URL", redis.address());
                }
                started.redis = Some(redis);
            }
        }
        Ok(started)
    }

    fn set(&mut self, name: &'static str, value: impl ToString) {
        self.environment.push((name, value.to_string()));
    }
}
