//! What was reported of other clients of Redis Cluster. The numbers are those of their public trackers; the inputs are ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::RedisCluster;
use tidegate_pipeline::{Arg, Batch, Client, Outcome, Rejection};
use tokio::task::JoinSet;

use crate::servers::cluster::move_slot;
use crate::support::crowd::{Answer, Asked, Crowd};
use crate::support::load::keys_where;
use crate::support::{eventually, one, send_one, soon};

fn increment(key: &str) -> Batch {
    one("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(1)])
}

fn slot(key: &str) -> u16 {
    redis_protocol::redis_keyslot(key.as_bytes())
}

/// valkey-glide 5893: behind a name or a balancer, a server says MOVED to the address that was asked, and closes. The command went
/// once more to the connection that was ending, and its fate was unknown.
#[tokio::test]
async fn a_server_that_moved_behind_its_own_address_is_found_on_a_new_connection() {
    let old = Arc::new(AtomicU64::new(u64::MAX));
    let (ran, edge) = (Arc::new(AtomicU64::new(0)), Arc::clone(&old));
    let counted = Arc::clone(&ran);
    let crowd = Crowd::answering(move |asked| {
        let is_increment = asked.command[0] == "INCRBY";
        if is_increment && asked.connection <= edge.load(SeqCst) && edge.load(SeqCst) != u64::MAX {
            return Some(Answer::Last(format!(
                "-MOVED {} :{}\r\n",
                slot(&asked.command[1]),
                asked.command[2]
            )));
        }
        is_increment.then(|| Answer::Reply(format!(":{}\r\n", counted.fetch_add(1, SeqCst) + 1)))
    })
    .await;
    let port = i64::from(crowd.port);
    // The amount that is added is the port, so that the server can name it.
    let to_itself = || one("INCRBY", &[Arg::Key(b"key"), Arg::Integer(port)]);
    crowd.name_owners(&[crowd.address("127.0.0.1")], 1);
    let client = Client::new(crowd.config()).unwrap();
    assert_eq!(
        client.send(to_itself(), soon()).await[0].integer().unwrap(),
        1
    );
    // Another server takes the address: the connections there are say so and end.
    old.store(crowd.accepted(), SeqCst);
    assert_eq!(
        client.send(to_itself(), soon()).await[0].integer().unwrap(),
        2
    );
    assert_eq!(ran.load(SeqCst), 2, "it ran once");
}

/// redis-rs 2277: all connections of twenty nodes are stale at once, and each of the attempts of a call met another one.
#[tokio::test]
async fn connections_of_twenty_nodes_that_end_at_once_fail_no_call() {
    let crowd = Crowd::start().await;
    let owners: Vec<_> = (1..=20)
        .map(|at| crowd.address(&format!("127.0.1.{at}")))
        .collect();
    crowd.name_owners(&owners, 20);
    let client = Client::new(crowd.config()).unwrap();
    let mut batch = Batch::new();
    for key in keys_where(200, |_| true) {
        // It may run twice: it is sent again when its connection breaks.
        batch
            .unit()
            .repeatable("EXPIRE", &[Arg::Key(key.as_bytes()), Arg::Integer(60)]);
    }
    for round in 0..5 {
        let outcomes = client.send(batch.clone(), soon()).await;
        assert!(
            outcomes.iter().all(|outcome| outcome.reply().is_ok()),
            "round {round}: {outcomes:?}"
        );
        crowd.hang_up();
    }
}

/// valkey-glide 5803: the callers of one stopped shard filled a bound of the whole client, and nobody else was served.
#[tokio::test]
async fn callers_of_a_lost_shard_do_not_take_the_room_of_others() {
    let mut cluster = RedisCluster::start(3, 0).await;
    for server in cluster.servers() {
        for setting in [
            "cluster-require-full-coverage no",
            "cluster-node-timeout 15000",
        ] {
            assert_eq!(server.raw(&format!("CONFIG SET {setting}")), "+OK\r\n");
        }
    }
    let mut config = cluster.config();
    config.queue_commands = 20;
    let client = Client::new(config).unwrap();
    let keys = |node: usize| keys_where(1, |key| cluster.owner(key) == node).remove(0);
    let (lost, safe) = (keys(1), keys(2));
    for key in [&lost, &safe] {
        send_one(
            &client,
            "INCRBY",
            &[Arg::Key(key.as_bytes()), Arg::Integer(1)],
        )
        .await
        .integer()
        .unwrap();
    }
    cluster.server_mut(1).kill();
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        let (client, batch) = (client.clone(), increment(&lost));
        callers.spawn(async move {
            client
                .send(batch, Instant::now() + Duration::from_secs(5))
                .await
                .remove(0)
        });
    }
    eventually("some wait, and the others have no room", async || {
        client.stats().overloads == 80
    })
    .await;
    // Another shard turns its callers away for a moment: there is room for them to wait.
    let server = &cluster.servers()[2];
    assert_eq!(
        server.raw(&format!("CLUSTER DELSLOTS {}", slot(&safe))),
        "+OK\r\n"
    );
    let call = {
        let (client, batch) = (client.clone(), increment(&safe));
        tokio::spawn(async move { client.send(batch, soon()).await.remove(0) })
    };
    eventually("it waits or was refused", async || {
        client.stats().retrying > 20 || call.is_finished()
    })
    .await;
    assert_eq!(
        server.raw(&format!("CLUSTER ADDSLOTS {}", slot(&safe))),
        "+OK\r\n"
    );
    assert_eq!(call.await.unwrap().integer().unwrap(), 2);
}

/// ioredis 2075: one slot of a batch had moved, and the whole batch failed or ran twice.
#[tokio::test]
async fn a_slot_that_moved_is_followed_alone_in_a_mixed_batch() {
    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    let keys = keys_where(2, |key| cluster.owner(key) == 0);
    assert_ne!(slot(&keys[0]), slot(&keys[1]));
    send_one(&client, "PING", &[]).await.reply().unwrap();
    move_slot(&cluster, &keys[0], 0, 1);
    let mut batch = Batch::new();
    for key in &keys {
        let key = Arg::Key(key.as_bytes());
        batch.unit().command("GET", &[key]);
        batch
            .unit()
            .command("INCRBY", &[key, Arg::Integer(1)])
            .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
    }
    for round in 1..=5 {
        let outcomes = client.send(batch.clone(), soon()).await;
        for counter in [&outcomes[1], &outcomes[4]] {
            assert_eq!(counter.integer().unwrap(), round, "{outcomes:?}");
        }
    }
    assert_eq!(
        client.stats().moved,
        2,
        "one for each unit of that slot, once"
    );
}

/// How a server treats ASKING, and what it did.
struct Asking {
    is_refused: AtomicBool,
    /// Times that it was asked and refused.
    refused: AtomicU64,
    /// Commands that ran.
    ran: AtomicU64,
}

impl Asking {
    fn answer(&self, question: &Asked<'_>) -> Option<Answer> {
        let refuses = self.is_refused.load(SeqCst);
        let reply = match &question.command[0][..] {
            "ASKING" if refuses => {
                self.refused.fetch_add(1, SeqCst);
                "-NOPERM this user has no permissions to run 'asking'\r\n".to_owned()
            }
            // A server that was not asked so sends the command back.
            "INCRBY" if refuses => {
                let (slot, back) = (slot(&question.command[1]), &question.command[2]);
                format!("-MOVED {slot} 127.0.0.1:{back}\r\n")
            }
            "INCRBY" => format!(":{}\r\n", self.ran.fetch_add(1, SeqCst) + 1),
            _ => return None,
        };
        Some(Answer::Reply(reply))
    }
}

/// redis-rs 2305: ASKING was refused, and the command behind it was sent as if it had not been.
#[tokio::test]
async fn a_command_behind_a_refused_asking_does_not_run_and_is_tried_again_with_waits() {
    let asking = Arc::new(Asking {
        is_refused: AtomicBool::new(true),
        refused: AtomicU64::new(0),
        ran: AtomicU64::new(0),
    });
    let at_target = Arc::clone(&asking);
    let target = Crowd::answering(move |question| at_target.answer(question)).await;
    let port = target.port;
    let source = Crowd::answering(move |question| {
        let ask = |key: &str| Answer::Reply(format!("-ASK {} 127.0.0.1:{port}\r\n", slot(key)));
        (question.command[0] == "INCRBY").then(|| ask(&question.command[1]))
    })
    .await;
    source.name_owners(&[source.address("127.0.0.1")], 1);
    target.name_owners(&[source.address("127.0.0.1")], 1);
    let client = Client::new(source.config()).unwrap();
    // The amount that is added is the port of the source, so that the target can name it.
    let amount = Arg::Integer(i64::from(source.port));
    let batch = one("INCRBY", &[Arg::Key(b"key"), amount]);
    let deadline = Instant::now() + Duration::from_secs(1);
    let outcome = client.send(batch.clone(), deadline).await.remove(0);
    let Outcome::Rejected(rejected) = &outcome else {
        panic!("{outcome:?}")
    };
    let redirected = matches!(
        rejected.kind,
        Rejection::Moved { .. } | Rejection::Ask { .. }
    );
    assert!(redirected, "{outcome:?}");
    assert_eq!(asking.ran.load(SeqCst), 0);
    let refused = asking.refused.load(SeqCst);
    assert!((1..100).contains(&refused), "{refused} times in a second");
    asking.is_refused.store(false, SeqCst);
    assert_eq!(client.send(batch, soon()).await[0].integer().unwrap(), 1);
    assert_eq!(asking.ran.load(SeqCst), 1, "it ran once");
}

/// ioredis 2059: a replica that did not know better named an old owner, and the map of slots was overwritten with it.
#[tokio::test]
async fn a_replica_that_names_an_old_owner_costs_a_redirect_and_no_slot() {
    let (gone, owner) = (Crowd::start().await, Crowd::start().await);
    let dead = gone.port;
    let replica = Crowd::answering(move |question| {
        let moved = |key: &str| Answer::Reply(format!("-MOVED {} 127.0.0.1:{dead}\r\n", slot(key)));
        (question.command[0] == "INCRBY").then(|| moved(&question.command[1]))
    })
    .await;
    drop(gone);
    // The seed says that the replica owns all, as it did before.
    let seed = Crowd::start().await;
    let all_at = |crowd: &Crowd| {
        [&seed, &replica, &owner].map(|one| one.name_owners(&[crowd.address("127.0.0.1")], 1))
    };
    all_at(&replica);
    let client = Client::new(seed.config()).unwrap();
    let outcome = client
        .send(
            increment("key"),
            Instant::now() + Duration::from_millis(300),
        )
        .await
        .remove(0);
    assert!(outcome.reply().is_err(), "nobody runs it: {outcome:?}");
    all_at(&owner);
    assert_eq!(
        client.send(increment("key"), soon()).await[0]
            .integer()
            .unwrap(),
        1
    );
    let redirects = client.stats().moved;
    for _ in 0..20 {
        client.send(increment("other"), soon()).await[0]
            .integer()
            .unwrap();
    }
    assert_eq!(
        client.stats().moved,
        redirects,
        "no slot stays with an old owner"
    );
}

/// ioredis 2096: a node that restarted without a change of slots was never connected to again.
#[tokio::test]
async fn a_node_that_restarts_without_a_change_of_slots_is_used_again() {
    let mut cluster = RedisCluster::start(3, 0).await;
    for server in cluster.servers() {
        assert_eq!(
            server.raw("CONFIG SET cluster-node-timeout 15000"),
            "+OK\r\n"
        );
    }
    let client = Client::new(cluster.config()).unwrap();
    let key = keys_where(1, |key| cluster.owner(key) == 1).remove(0);
    client.send(increment(&key), soon()).await[0]
        .integer()
        .unwrap();
    for _ in 0..3 {
        cluster.server_mut(1).kill();
        eventually("the loss is noticed", async || {
            client.stats().connections < 1 || is_lost(&client, &key).await
        })
        .await;
        cluster.server_mut(1).restart().await;
        // It takes part again when it has heard of the others.
        client.send(increment(&key), soon()).await[0]
            .integer()
            .unwrap();
    }
}

async fn is_lost(client: &Client, key: &str) -> bool {
    client
        .send(increment(key), Instant::now() + Duration::from_millis(50))
        .await[0]
        .reply()
        .is_err()
}
