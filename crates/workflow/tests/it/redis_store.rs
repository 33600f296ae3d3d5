//! What only the Redis store does: names of keys, round trips, memory, and Redis that forgets, is full, or is gone.

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_workflow::{RedisOptions, RedisStore, Store};

use crate::contract::PARTITIONS;

fn options() -> RedisOptions {
    RedisOptions::new("tg:", PARTITIONS, std::time::Duration::from_secs(5)).unwrap()
}

async fn open() -> (Store, RedisServer) {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    (Store::Redis(RedisStore::open(client, options()).await.unwrap()), server)
}

async fn open_cluster() -> (Store, RedisCluster) {
    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    (Store::Redis(RedisStore::open(client, options()).await.unwrap()), cluster)
}

contract!(redis, super::open);
contract!(redis_cluster, super::open_cluster);
