//! What only the Redis store does: what it leaves in Redis and asks of it, and what it says when Redis does not do as asked.

mod failover;
mod faults;
mod holders;
mod large;
mod layout;
mod lost;
mod partial_writes;
mod replicas;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Client, Protocol};
use tidegate_workflow::{RedisOptions, RedisStore, Store};

use crate::contract::PARTITIONS;

fn options(prefix: impl Into<String>) -> RedisOptions {
    RedisOptions::new(prefix, PARTITIONS, Duration::from_secs(5)).unwrap()
}

async fn open_with(client: &Client, options: RedisOptions) -> Store {
    Store::Redis(RedisStore::open(client.clone(), options).await.unwrap())
}

async fn open() -> (Store, RedisServer) {
    let (store, server, _client) = open_with_client().await;
    (store, server)
}

async fn open_with_client() -> (Store, RedisServer, Client) {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    (open_with(&client, options("tg:")).await, server, client)
}

async fn open_resp3() -> (Store, RedisServer) {
    let server = RedisServer::start().await;
    let mut config = server.config();
    config.protocol = Protocol::Resp3;
    (
        open_with(&Client::new(config).unwrap(), options("tg:")).await,
        server,
    )
}

/// A cluster takes seconds to form, so tests that run at the same time share one, each under a prefix of its own. The last one
/// ends it.
async fn open_cluster() -> (Store, Arc<RedisCluster>) {
    static SHARED: tokio::sync::Mutex<Weak<RedisCluster>> =
        tokio::sync::Mutex::const_new(Weak::new());
    static STORES: AtomicU32 = AtomicU32::new(0);
    let mut shared = SHARED.lock().await;
    let cluster = match shared.upgrade() {
        Some(cluster) => cluster,
        None => Arc::new(RedisCluster::start(3, 0).await),
    };
    *shared = Arc::downgrade(&cluster);
    let client = Client::new(cluster.config()).unwrap();
    let prefix = format!("test{}:", STORES.fetch_add(1, Relaxed));
    (open_with(&client, options(prefix)).await, cluster)
}

contract!(redis, super::open);
contract!(redis_resp3, super::open_resp3);
contract!(redis_cluster, super::open_cluster);
