//! The same engine on Valkey.

use tidegate_pipeline::test_util::{RedisCluster, RedisServer, valkey_program};
use tidegate_pipeline::{Arg, Batch, Client, Outcome, Protocol};

use crate::support::soon;

fn counters() -> Batch {
    let mut batch = Batch::new();
    for index in 0..50_u64 {
        let key = format!("{:x}", index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let key = Arg::Key(key.as_bytes());
        batch
            .unit()
            .command("INCRBY", &[key, Arg::Integer(2)])
            .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
    }
    batch
}

fn check(outcomes: &[Outcome], total: i64) {
    assert_eq!(outcomes.len(), 100);
    for pair in outcomes.chunks(2) {
        assert_eq!(
            (pair[0].integer().unwrap(), pair[1].integer().unwrap()),
            (total, 1)
        );
    }
}

#[tokio::test]
async fn one_server_counts_in_both_protocols() {
    let server = RedisServer::start_program(valkey_program(), &[]).await;
    for (protocol, total) in [(Protocol::Resp2, 2), (Protocol::Resp3, 4)] {
        let mut config = server.config();
        config.protocol = protocol;
        check(
            &Client::new(config).unwrap().send(counters(), soon()).await,
            total,
        );
    }
}

#[tokio::test]
async fn a_cluster_counts_on_every_node() {
    let cluster = RedisCluster::start_program(valkey_program(), 3, 0).await;
    let mut config = cluster.config();
    // A busy node gets more connections. With one at most for each, their number is that of the nodes.
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    for total in [2, 4] {
        check(&client.send(counters(), soon()).await, total);
    }
    assert_eq!(client.stats().connections, 3);
}
