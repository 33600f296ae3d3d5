//! Batches over a real cluster, while it stays as it is and while it changes.

mod failover;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::RedisCluster;
use tidegate_pipeline::{
    Address, AddressMap, Arg, Batch, Client, NotSent, Outcome, Parallelism, Reply,
};

use crate::support::fake::FakeCluster;
use crate::support::{eventually, one, send_one, soon};

fn counters(keys: &[String]) -> Batch {
    let mut batch = Batch::new();
    for key in keys {
        let key = Arg::Key(key.as_bytes());
        batch
            .unit()
            .command("INCRBY", &[key, Arg::Integer(1)])
            .repeatable("EXPIRE", &[key, Arg::Integer(600)]);
    }
    batch
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("key-{index}")).collect()
}

fn increments(outcomes: &[Outcome]) -> Vec<i64> {
    outcomes
        .iter()
        .step_by(2)
        .map(|outcome| outcome.integer().unwrap())
        .collect()
}

#[tokio::test]
async fn a_batch_over_all_nodes_costs_one_group_per_node() {
    let cluster = RedisCluster::start(3, 0).await;
    let mut config = cluster.config();
    // A busy node gets more connections. With one at most for each, their number is that of the nodes.
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    let keys = keys(100);
    assert_eq!(
        increments(&client.send(counters(&keys), soon()).await),
        vec![1; 100]
    );
    let before = client.stats();
    let outcomes = client.send(counters(&keys), soon()).await;
    assert_eq!(increments(&outcomes), vec![2; 100]);
    assert!(
        outcomes
            .iter()
            .skip(1)
            .step_by(2)
            .all(|outcome| *outcome == Outcome::Reply(Reply::Integer(1)))
    );
    let after = client.stats();
    assert_eq!(after.writes - before.writes, 3, "one write per node");
    assert_eq!(after.connections, 3);

    for (parallelism, setting) in [
        (Parallelism::SERIAL, "serial"),
        (Parallelism::new(2, 10).unwrap(), "two at once"),
    ] {
        let mut config = cluster.config();
        config.parallelism = parallelism;
        let client = Client::new(config).unwrap();
        let outcomes = client.send(counters(&keys), soon()).await;
        assert!(
            increments(&outcomes)
                .iter()
                .all(|&value| value == increments(&outcomes)[0]),
            "{setting}"
        );
    }
}

#[tokio::test]
async fn serial_groups_stop_at_the_first_error() {
    let cluster = RedisCluster::start(3, 0).await;
    let keys = keys(3);
    let owners: Vec<usize> = keys.iter().map(|key| cluster.owner(key)).collect();
    let other = owners.iter().position(|owner| *owner != owners[0]).unwrap();
    let mut batch = Batch::new();
    batch
        .unit()
        .command("LPUSH", &[Arg::Key(keys[0].as_bytes()), Arg::Bytes(b"x")]);
    batch
        .unit()
        .command("INCRBY", &[Arg::Key(keys[0].as_bytes()), Arg::Integer(1)]);
    batch.unit().command(
        "INCRBY",
        &[Arg::Key(keys[other].as_bytes()), Arg::Integer(1)],
    );

    let mut config = cluster.config();
    config.parallelism = Parallelism::SERIAL;
    let outcomes = Client::new(config)
        .unwrap()
        .send(batch.clone(), soon())
        .await;
    assert!(
        matches!(&outcomes[1], Outcome::ServerError(error) if error.message.starts_with("WRONGTYPE")),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[2], Outcome::NotSent(NotSent::Skipped));

    // In parallel every group runs, whatever becomes of the others.
    let outcomes = Client::new(cluster.config())
        .unwrap()
        .send(batch, soon())
        .await;
    assert!(
        matches!(&outcomes[1], Outcome::ServerError(_)),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[2].integer().unwrap(), 1);
}

#[tokio::test]
async fn commands_without_a_key_run_anywhere() {
    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    assert_eq!(
        send_one(&client, "PING", &[]).await.bytes().unwrap(),
        Some(&b"PONG"[..])
    );
}

#[tokio::test]
async fn a_cluster_nobody_answers_for_is_an_error_by_the_deadline() {
    let mut config = tidegate_pipeline::Config::cluster(vec![
        format!("127.0.0.1:{}", tidegate_pipeline::test_util::free_port())
            .parse()
            .unwrap(),
    ]);
    config.connect_timeout = Duration::from_millis(100);
    let client = Client::new(config).unwrap();
    let outcomes = client
        .send(
            one("GET", &[Arg::Key(b"k")]),
            Instant::now() + Duration::from_millis(200),
        )
        .await;
    assert!(
        matches!(&outcomes[..], [Outcome::NotSent(NotSent::NoOwner { .. })]),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn a_transaction_follows_its_slot() {
    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    send_one(&client, "PING", &[]).await.reply().unwrap();
    let from = cluster.owner("{t}1");
    move_slot(&cluster, "{t}1", from, (from + 1) % 3);
    let key = Arg::Key(b"{t}1");
    let mut batch = Batch::new();
    batch
        .unit()
        .command("MULTI", &[])
        .command("INCRBY", &[key, Arg::Integer(1)])
        .command("INCRBY", &[key, Arg::Integer(1)])
        .command("EXEC", &[]);
    let outcomes = client.send(batch, soon()).await;
    let expected = Reply::Array(vec![Ok(Reply::Integer(1)), Ok(Reply::Integer(2))]);
    assert_eq!(outcomes[3].reply().unwrap(), &expected);
}

/// Moves the slot of a key that holds nothing.
pub(crate) fn move_slot(cluster: &RedisCluster, key: &str, from: usize, to: usize) {
    let slot = cluster.servers()[0].raw(&format!("CLUSTER KEYSLOT {key}"));
    let slot = slot.trim_start_matches(':').trim();
    import_slot(cluster, key, slot, from, to);
    assign_slot(cluster, slot, from, to);
}

/// Makes a node ready to receive a slot. A node that does not import it, or that has not yet heard of
/// the source's epoch, would take it with a lower epoch, lose it again to a late message of the source, and
/// both would redirect to each other.
fn import_slot(cluster: &RedisCluster, key: &str, slot: &str, from: usize, to: usize) {
    let (source, target) = (&cluster.servers()[from], &cluster.servers()[to]);
    let owner = format!(":{}\r\n", source.port());
    wait_until("the target knows the owner", || {
        target.raw(&format!("EXISTS {key}")).ends_with(&owner)
    });
    assert_eq!(
        target.raw(&format!(
            "CLUSTER SETSLOT {slot} IMPORTING {}",
            cluster.id(from)
        )),
        "+OK\r\n"
    );
}

fn assign_slot(cluster: &RedisCluster, slot: &str, from: usize, to: usize) {
    for server in [to, from] {
        let reply = cluster.servers()[server]
            .raw(&format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(to)));
        assert_eq!(reply, "+OK\r\n");
    }
}

/// Moves the slot of one key from one node to another as redis-cli does: keys travel one at a time while it is used.
fn migrate_slot(cluster: &RedisCluster, slot: &str, from: usize, to: usize) {
    let (source, target) = (&cluster.servers()[from], &cluster.servers()[to]);
    import_slot(cluster, "{hot}", slot, from, to);
    assert_eq!(
        source.raw(&format!(
            "CLUSTER SETSLOT {slot} MIGRATING {}",
            cluster.id(to)
        )),
        "+OK\r\n"
    );
    loop {
        let reply = source.raw(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
        let Some(key) = reply.split("\r\n").nth(2).filter(|key| !key.is_empty()) else {
            break;
        };
        let moved = source.raw(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", target.port()));
        assert!(
            moved.starts_with("+OK") || moved.starts_with("+NOKEY"),
            "{moved}"
        );
    }
    assign_slot(cluster, slot, from, to);
}

/// Waits on a thread that may block.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = soon();
    while !condition() {
        assert!(Instant::now() < deadline, "did not come true: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

struct Count {
    acknowledged: Vec<i64>,
    errors: Vec<Outcome>,
}

/// Increments all keys, batch after batch, until told to stop.
async fn count_until(client: Client, keys: Vec<String>, stop: Arc<AtomicBool>) -> Count {
    let mut count = Count {
        acknowledged: vec![0; keys.len()],
        errors: Vec::new(),
    };
    while !stop.load(SeqCst) {
        let outcomes = client
            .send(counters(&keys), Instant::now() + Duration::from_secs(5))
            .await;
        for (index, pair) in outcomes.chunks(2).enumerate() {
            match &pair[0] {
                Outcome::Reply(_) => count.acknowledged[index] += 1,
                error => count.errors.push(error.clone()),
            }
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load_and_no_caller_notices() {
    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    // Several keys in one slot, so that for a while some are here and some there.
    let keys: Vec<String> = (0..12)
        .map(|index| format!("{{hot}}{index}"))
        .chain(keys(8))
        .collect();
    assert_eq!(
        increments(&client.send(counters(&keys), soon()).await),
        vec![1; keys.len()]
    );
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..16)
        .map(|_| tokio::spawn(count_until(client.clone(), keys.clone(), Arc::clone(&stop))))
        .collect();
    let cluster = tokio::task::spawn_blocking(move || {
        let slot = cluster.servers()[0].raw("CLUSTER KEYSLOT hot");
        let slot = slot.trim_start_matches(':').trim().to_owned();
        let mut owner = cluster.owner("{hot}");
        for _ in 0..6 {
            let next = (owner + 1) % 3;
            migrate_slot(&cluster, &slot, owner, next);
            owner = next;
        }
        cluster
    })
    .await
    .unwrap();
    stop.store(true, SeqCst);
    let mut total = vec![1; keys.len()];
    for caller in callers {
        let count = caller.await.unwrap();
        assert_eq!(count.errors, [], "callers saw errors");
        total
            .iter_mut()
            .zip(&count.acknowledged)
            .for_each(|(total, more)| *total += more);
    }
    let mut look = Batch::new();
    keys.iter().for_each(|key| {
        look.unit()
            .command("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(0)])
            .command("TTL", &[Arg::Key(key.as_bytes())]);
    });
    let outcomes = client.send(look, soon()).await;
    assert_eq!(
        increments(&outcomes),
        total,
        "every acknowledged increment counts once"
    );
    assert!(
        outcomes
            .iter()
            .skip(1)
            .step_by(2)
            .all(|ttl| ttl.integer().unwrap() > 0),
        "every counter expires"
    );
    drop(cluster);
}

#[tokio::test]
async fn nodes_that_name_themselves_by_names_from_inside_are_reached_from_outside() {
    let cluster = RedisCluster::start(3, 0).await;
    for (at, server) in cluster.servers().iter().enumerate() {
        for setting in [
            &format!("cluster-announce-hostname node-{at}.inside"),
            "cluster-preferred-endpoint-type hostname",
        ] {
            assert_eq!(server.raw(&format!("CONFIG SET {setting}")), "+OK\r\n");
        }
    }
    eventually("all nodes name all by their names", async || {
        cluster
            .servers()
            .iter()
            .all(|server| server.raw("CLUSTER SLOTS").matches(".inside").count() == 3)
    })
    .await;
    let mut config = cluster.config();
    config.address_map = Some(AddressMap::new(|address| match address {
        Address::Tcp { host, port } if host.ends_with(".inside") => Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port,
        },
        other => other,
    }));
    // A node known by two names would be two nodes. A busy node gets more connections, but here at most one, so that their
    // number is that of the nodes.
    config.max_connections = 1;
    let (client, keys) = (Client::new(config).unwrap(), keys(30));
    assert_eq!(
        increments(&client.send(counters(&keys), soon()).await),
        vec![1; keys.len()]
    );
    // A redirect names a node as well.
    let from = cluster.owner("{t}1");
    move_slot(&cluster, "{t}1", from, (from + 1) % 3);
    assert_eq!(
        increments(&client.send(counters(&["{t}1".to_owned()]), soon()).await),
        [1]
    );
    assert_eq!(
        (client.stats().connections, client.stats().connect_failures),
        (3, 0)
    );

    let lost = Client::new(cluster.config()).unwrap();
    let deadline = Instant::now() + Duration::from_millis(300);
    let outcomes = lost.send(counters(&keys), deadline).await;
    assert!(
        outcomes.iter().all(|outcome| outcome.reply().is_err()),
        "the names mean something here: nothing is shown"
    );
}

#[tokio::test]
async fn a_storm_of_redirects_costs_one_refresh_a_second() {
    let cluster = FakeCluster::start(3, 2).await;
    let client = Client::new(cluster.config()).unwrap();
    let keys: Vec<String> = (0..40).map(|index| format!("storm-{index}")).collect();
    keys.iter().for_each(|key| cluster.disown(key));
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for key in keys {
        let client = client.clone();
        callers.spawn(async move {
            let until = started + Duration::from_millis(2_500);
            while Instant::now() < until {
                client
                    .send(counters(std::slice::from_ref(&key)), until)
                    .await;
            }
        });
    }
    callers.join_all().await;
    let (refreshes, redirects) = (client.stats().refreshes, cluster.redirected());
    let most = 1 + started.elapsed().as_secs();
    assert!(redirects > 400, "{redirects} redirects are no storm");
    assert!(
        (2..=most).contains(&refreshes),
        "{refreshes} refreshes in {:?}",
        started.elapsed()
    );
}

/// The answer of a single node that knows less than the others replaced the whole topology, when no other node could be asked.
#[tokio::test]
async fn one_node_that_knows_less_changes_nothing() {
    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    let key = (0..)
        .map(|index| format!("key-{index}"))
        .find(|key| cluster.owner(key) == 2)
        .unwrap();
    let get = async |deadline: Instant| {
        client
            .send(one("GET", &[Arg::Key(key.as_bytes())]), deadline)
            .await
            .remove(0)
    };
    get(soon()).await.reply().unwrap();
    for server in &cluster.servers()[1..] {
        assert_eq!(server.raw("ACL SETUSER default -cluster|slots"), "+OK\r\n");
    }
    let asked = cluster.servers()[0].raw("CLUSTER SLOTS").len();
    assert_eq!(
        cluster.servers()[0].raw(&format!("CLUSTER FORGET {}", cluster.id(2))),
        "+OK\r\n"
    );
    assert!(
        cluster.servers()[0].raw("CLUSTER SLOTS").len() < asked,
        "it knows as much as before"
    );
    // A lost connection calls for a refresh; the second one that begins shows that the first one is over.
    let before = client.stats().refreshes;
    for refreshes in 1..=2 {
        let _ = cluster.servers()[2].raw("CLIENT KILL TYPE normal SKIPME yes");
        eventually("the slots were asked for", async || {
            let _ = get(Instant::now() + Duration::from_millis(100)).await;
            client.stats().refreshes >= before + refreshes
        })
        .await;
    }
    get(Instant::now() + Duration::from_secs(1))
        .await
        .reply()
        .unwrap();
}
