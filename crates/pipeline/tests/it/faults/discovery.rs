//! Clusters whose nodes freeze, move away or contradict each other, and how soon the owners of slots are known again.
//!
//! Where a test has a bound in seconds, it is the deadline of a call: what a caller waits for, not how fast something is.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::RedisCluster;
use tidegate_pipeline::{Address, Arg, Batch, Client, Outcome};

use crate::support::crowd::{Answer, Crowd};
use crate::support::load::keys_where;
use crate::support::{eventually, one, send_one};

fn hosts(crowd: &Crowd, network: u8, count: usize) -> Vec<Address> {
    (0..count)
        .map(|at| crowd.address(&format!("127.{network}.{}.{}", at / 250, 1 + at % 250)))
        .collect()
}

async fn increment(client: &Client, key: &str, wait: Duration) -> Outcome {
    let batch = one("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(1)]);
    client.send(batch, Instant::now() + wait).await.remove(0)
}

/// The frozen server was asked who owns what with the whole time for a connection, and before that a connection to it was
/// waited for as long: with ten seconds, an outage lasted for thirteen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_primary_is_replaced_although_a_connection_may_take_long() {
    let cluster = RedisCluster::start(3, 1).await;
    let mut config = cluster.config();
    config.connect_timeout = Duration::from_secs(10);
    let client = Client::new(config).unwrap();
    // The seed itself: who asks it first, asks it in vain.
    let key = keys_where(1, |key| cluster.owner(key) == 0).remove(0);
    send_one(
        &client,
        "INCRBY",
        &[Arg::Key(key.as_bytes()), Arg::Integer(1)],
    )
    .await
    .integer()
    .unwrap();
    cluster.servers()[0].pause();
    let frozen = Instant::now();
    let mut took_over = None;
    while increment(&client, &key, Duration::from_millis(200))
        .await
        .reply()
        .is_err()
    {
        let replica = cluster.servers()[3].raw("ROLE");
        took_over = took_over.or_else(|| replica.contains("master").then(Instant::now));
        let waited = took_over.map_or(Duration::ZERO, |moment| moment.elapsed());
        assert!(
            waited < Duration::from_secs(4),
            "nobody asks who took over, {:?} after the freeze",
            frozen.elapsed()
        );
        assert!(
            frozen.elapsed() < Duration::from_secs(30),
            "no replica took over"
        );
    }
    cluster.servers()[0].resume();
}

/// Each of the old nodes was waited for, one after the other, and the seed came last: node-redis 3252, of which this is the case
/// that all nodes got new addresses at the same time. A new cluster with fewer owners was never believed.
#[tokio::test]
async fn a_cluster_that_moved_away_is_found_by_its_seed_while_the_old_addresses_are_silent() {
    let wait = Duration::from_secs(3);
    for (owners, all) in [(30, 30), (3, 3), (3, 4)] {
        let (seed, mut old, new) = (
            Crowd::start().await,
            Crowd::start().await,
            Crowd::start().await,
        );
        let (before, after) = (hosts(&old, 1, 30), hosts(&new, 2, owners));
        seed.name_owners(&before, 30);
        old.name_owners(&before, 30);
        let mut config = seed.config();
        config.connect_timeout = Duration::from_secs(10);
        let client = Client::new(config).unwrap();
        // In the slots that the new cluster has in any case.
        for key in keys_where(20, |key| {
            redis_protocol::redis_keyslot(key.as_bytes()) < 12_000
        }) {
            increment(&client, &key, wait).await.integer().unwrap();
        }
        seed.name_owners(&after, all);
        new.name_owners(&after, all);
        old.vanish().await;
        for key in keys_where(20, |key| {
            redis_protocol::redis_keyslot(key.as_bytes()) < 12_000
        }) {
            let outcome = increment(&client, &key, wait).await;
            assert!(
                outcome.reply().is_ok(),
                "{owners} owners of {all} shares: {outcome:?}"
            );
        }
    }
}

/// Two servers that agreed were enough, whatever they took away.
#[tokio::test]
async fn two_servers_with_an_old_view_take_no_slots_away() {
    let (stale, rest) = (
        Crowd::start().await,
        Crowd::answering(|asked| hides_slots(asked.command)).await,
    );
    // Three owners, of which only the first and a seed that owns nothing say who owns what.
    let owners = [
        stale.address("127.1.0.1"),
        rest.address("127.1.0.2"),
        rest.address("127.1.0.3"),
    ];
    stale.name_owners(&owners, 3);
    let client = Client::new(stale.config()).unwrap();
    let key = keys_where(1, |key| {
        redis_protocol::redis_keyslot(key.as_bytes()) > 12_000
    })
    .remove(0);
    let expire = async || {
        let mut batch = Batch::new();
        batch
            .unit()
            .repeatable("EXPIRE", &[Arg::Key(key.as_bytes()), Arg::Integer(60)]);
        let outcome = client
            .send(batch, Instant::now() + Duration::from_secs(3))
            .await
            .remove(0);
        assert!(outcome.reply().is_ok(), "{outcome:?}");
    };
    expire().await;
    stale.name_owners(&owners[..2], 3);
    let before = client.stats().refreshes;
    eventually("the servers were asked again, and answered", async || {
        // A connection that is lost makes the client ask.
        rest.hang_up();
        expire().await;
        client.stats().refreshes > before + 2
    })
    .await;
    expire().await;
}

fn hides_slots(command: &[String]) -> Option<Answer> {
    (command[0] == "CLUSTER").then(|| Answer::Reply("-NOPERM no permission\r\n".to_owned()))
}

/// go-redis 3678: of six hundred nodes half dropped all packets.
#[tokio::test]
async fn half_of_six_hundred_nodes_are_silent_and_the_others_are_served() {
    let (alive, mut silent) = (Crowd::start().await, Crowd::start().await);
    let (good, bad) = (hosts(&alive, 1, 300), hosts(&silent, 2, 300));
    let owners: Vec<Address> = good
        .iter()
        .zip(&bad)
        .flat_map(|(good, bad)| [good.clone(), bad.clone()])
        .collect();
    alive.name_owners(&owners, 600);
    silent.vanish().await;
    let client = Client::new(alive.config()).unwrap();
    let share =
        |key: &str| usize::from(redis_protocol::redis_keyslot(key.as_bytes())) * 600 / 16_384;
    let is_good = |key: &str| (0..600).any(|at| at % 2 == 0 && at == share(key)) && !is_border(key);
    let good_keys = keys_where(100, is_good);
    let bad_keys = keys_where(30, |key| share(key) % 2 == 1 && !is_border(key));
    let mut lost = tokio::task::JoinSet::new();
    for key in bad_keys.clone() {
        let client = client.clone();
        lost.spawn(async move { increment(&client, &key, Duration::from_millis(1_500)).await });
    }
    for key in &good_keys {
        let outcome = increment(&client, key, Duration::from_secs(3)).await;
        assert!(outcome.reply().is_ok(), "{key}: {outcome:?}");
    }
    assert!(
        lost.join_all()
            .await
            .iter()
            .all(|outcome| matches!(outcome, Outcome::NotSent(_)))
    );
    // The others take over. Half of those that are asked do not answer.
    let taken: Vec<Address> = good
        .iter()
        .flat_map(|good| [good.clone(), good.clone()])
        .collect();
    alive.name_owners(&taken, 600);
    for key in &bad_keys {
        let outcome = increment(&client, key, Duration::from_secs(8)).await;
        assert!(outcome.reply().is_ok(), "{key}: {outcome:?}");
    }
}

/// Whether a slot is so near to the next share that rounding decides.
fn is_border(key: &str) -> bool {
    let slot = usize::from(redis_protocol::redis_keyslot(key.as_bytes()));
    let share = |slot: usize| slot * 600 / 16_384;
    share(slot.saturating_sub(1)) != share(slot) || share(slot + 1) != share(slot)
}
