//! What only the Redis store does: names of keys, round trips, memory, and Redis that forgets, is full, or is gone.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_workflow::{RedisOptions, RedisStore, Store};

use crate::contract::PARTITIONS;

fn options() -> RedisOptions {
    RedisOptions::new("tg:", PARTITIONS, Duration::from_secs(5)).unwrap()
}

async fn open() -> (Store, RedisServer) {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    (Store::Redis(RedisStore::open(client, options()).await.unwrap()), server)
}

/// A cluster takes seconds to form, so tests that run at the same time share one, each under a prefix of its own. The last one
/// ends it.
async fn open_cluster() -> (Store, Arc<RedisCluster>) {
    static SHARED: tokio::sync::Mutex<Weak<RedisCluster>> = tokio::sync::Mutex::const_new(Weak::new());
    static STORES: AtomicU32 = AtomicU32::new(0);
    let mut shared = SHARED.lock().await;
    let cluster = match shared.upgrade() {
        Some(cluster) => cluster,
        None => Arc::new(RedisCluster::start(3, 0).await),
    };
    *shared = Arc::downgrade(&cluster);
    let client = Client::new(cluster.config()).unwrap();
    let prefix = format!("test{}:", STORES.fetch_add(1, Relaxed));
    let options = RedisOptions::new(prefix, PARTITIONS, Duration::from_secs(5)).unwrap();
    (Store::Redis(RedisStore::open(client, options).await.unwrap()), cluster)
}

contract!(redis, super::open);
contract!(redis_cluster, super::open_cluster);
