//! Every store that there is, for tests that run against all of them.

use std::time::Duration;

use tidegate_memcache::Servers;
use tidegate_memcache::test_util::MemcachedServer;
use tidegate_pipeline::test_util::{RedisCluster, RedisServer, valkey_program};
use tidegate_pipeline::{Client, Config, Protocol};
use tidegate_ratelimit::{MemcacheStore, RedisStore, Store};

use crate::fixture::memory;

/// Runs a test against every store, each empty.
pub(crate) async fn for_every_store(test: impl AsyncFn(Store)) {
    for_every_exact_store(&test).await;
    let servers: Vec<_> = (0..4).map(|_| MemcachedServer::start()).collect();
    run("memcached", memcached(&servers[..1]), &test).await;
    run(
        "three servers of memcached",
        memcached(&servers[1..]),
        &test,
    )
    .await;
}

/// Runs a test against every store that fails when it cannot count.
pub(crate) async fn for_every_exact_store(test: impl AsyncFn(Store)) {
    run("memory", memory(), &test).await;
    let (redis, valkey, cluster) = tokio::join!(
        RedisServer::start(),
        RedisServer::start_program(valkey_program(), &[]),
        RedisCluster::start(3, 0)
    );
    run("Redis, RESP2", single(&redis, Protocol::Resp2), &test).await;
    forget(&redis);
    run("Redis, RESP3", single(&redis, Protocol::Resp3), &test).await;
    run("Valkey, RESP2", single(&valkey, Protocol::Resp2), &test).await;
    forget(&valkey);
    run("Valkey, RESP3", single(&valkey, Protocol::Resp3), &test).await;
    forget(&redis);
    forget(&valkey);
    let two = RedisStore::new(client(redis.config()), Some(client(valkey.config())));
    run(
        "two servers, one for limits per second",
        Store::Redis(two),
        &test,
    )
    .await;
    run(
        "Redis Cluster",
        Store::Redis(RedisStore::new(client(cluster.config()), None)),
        &test,
    )
    .await;
    cluster.servers().iter().for_each(forget);
    forget(&redis);
    let two = RedisStore::new(client(cluster.config()), Some(client(redis.config())));
    run(
        "Redis Cluster, and a server for limits per second",
        Store::Redis(two),
        &test,
    )
    .await;
}

async fn run(name: &str, store: Store, test: &impl AsyncFn(Store)) {
    #[expect(
        clippy::print_stdout,
        reason = "the name is printed with a test that fails"
    )]
    {
        println!("{name}");
    }
    test(store).await;
}

fn single(server: &RedisServer, protocol: Protocol) -> Store {
    let mut config = server.config();
    config.protocol = protocol;
    Store::Redis(RedisStore::new(client(config), None))
}

/// One client: the second of two requests reads what the first one charged.
pub(crate) fn memcached(servers: &[MemcachedServer]) -> Store {
    let addresses = servers.iter().map(MemcachedServer::address).collect();
    let mut config = tidegate_memcache::Config::default();
    config.timeout = Duration::from_secs(20);
    let client = tidegate_memcache::Client::new(config, Servers::new(addresses));
    Store::Memcache(MemcacheStore::new(client))
}

fn client(config: Config) -> Client {
    Client::new(config).expect("default bounds are valid")
}

fn forget(server: &RedisServer) {
    assert_eq!(server.raw("FLUSHALL"), "+OK\r\n");
}
