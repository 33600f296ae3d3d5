//! A replica takes over.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_the_node_that_takes_over_and_not_beyond_its_deadline() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let client = Client::new(cluster.config()).unwrap();
    let keys = keys(1);
    assert_eq!(increments(&client.send(counters(&keys), soon()).await), [1]);
    let victim = cluster.owner(&keys[0]);
    cluster.server_mut(victim).kill();
    eventually("the loss is noticed", async || {
        client.stats().connect_failures > 0
    })
    .await;

    let (started, patience) = (Instant::now(), Duration::from_millis(300));
    let outcome = client
        .send(counters(&keys), started + patience)
        .await
        .remove(0);
    assert!(
        matches!(outcome, Outcome::NotSent(NotSent::Unavailable { .. })),
        "{outcome:?}"
    );
    assert!(
        started.elapsed() >= patience && started.elapsed() < patience * 2,
        "{:?}",
        started.elapsed()
    );

    let outcomes = client.send(counters(&keys), soon()).await;
    assert!(
        outcomes.iter().all(|outcome| outcome.reply().is_ok()),
        "{outcomes:?}"
    );
    assert!(
        started.elapsed() > patience * 2,
        "nobody had to wait: the test shows nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_replaced_and_nothing_counts_twice() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let client = Client::new(cluster.config()).unwrap();
    let keys = keys(12);
    assert_eq!(
        increments(&client.send(counters(&keys), soon()).await),
        vec![1; keys.len()]
    );
    let victim = cluster.owner(&keys[0]);
    let safe = keys
        .iter()
        .find(|key| cluster.owner(key) != victim)
        .unwrap()
        .clone();
    cluster.server_mut(victim).kill();
    eventually("the replica's turn has come", async || {
        // The other nodes' keys work all along.
        send_one(
            &client,
            "INCRBY",
            &[Arg::Key(safe.as_bytes()), Arg::Integer(1)],
        )
        .await
        .integer()
        .unwrap();
        let outcomes = client
            .send(
                counters(&keys[..1]),
                Instant::now() + Duration::from_millis(300),
            )
            .await;
        outcomes[0].reply().is_ok()
    })
    .await;
    let outcomes = client.send(counters(&keys), soon()).await;
    assert!(
        outcomes.iter().all(|outcome| outcome.reply().is_ok()),
        "{outcomes:?}"
    );
}
