//! Nodes that leave the cluster.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Client};
use tokio::task::JoinSet;

use crate::support::fake::FakeCluster;
use crate::support::{eventually, one, send_one};

/// What waited for a node that left the cluster ended as "the client is closed", long after the new owner was known.
#[tokio::test]
async fn what_waits_for_a_node_that_leaves_goes_to_the_new_owner() {
    const CALLERS: i64 = 60;
    let cluster = FakeCluster::start(3, 3).await;
    let mut config = cluster.config();
    (config.in_flight_commands, config.max_connections) = (1, 1);
    let client = Client::new(config).unwrap();
    send_one(&client, "INCRBY", &[Arg::Key(b"key"), Arg::Integer(0)])
        .await
        .integer()
        .unwrap();
    let owner = cluster.owner("key");
    cluster.slow_down(owner, Duration::from_millis(200));
    let mut callers = JoinSet::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    for _ in 0..CALLERS {
        let client = client.clone();
        callers.spawn(async move {
            client
                .send(
                    one("INCRBY", &[Arg::Key(b"key"), Arg::Integer(1)]),
                    deadline,
                )
                .await
        });
    }
    eventually("the callers wait", async || {
        client.stats().waiting >= CALLERS as u64 / 2
    })
    .await;
    cluster.hand_over(owner, (owner + 1) % 3);
    while let Some(outcomes) = callers.join_next().await {
        outcomes.unwrap()[0].integer().unwrap();
    }
    assert_eq!(cluster.counter("key"), CALLERS);
}
