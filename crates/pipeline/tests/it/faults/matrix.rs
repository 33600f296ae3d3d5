//! A real cluster under load while its nodes die, freeze, change roles and addresses.
//!
//! Calls are counted, never timed: how long a fault lasts depends on the machine, whom it may touch does not.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Arg, Client, Outcome};

use crate::support::load::{Load, Tally, check_books, check_exact, check_not_doubled, keys_where};
use crate::support::{eventually, one};

/// Longer than any failover here.
const PATIENT: Duration = Duration::from_secs(10);

/// Shorter than a failover: such callers see it.
const IMPATIENT: Duration = Duration::from_millis(200);

/// Callers on the node that will have trouble, and on the others.
struct Callers {
    client: Client,
    troubled: Load,
    others: Load,
}

impl Callers {
    async fn start(cluster: &RedisCluster, node: usize, patience: Duration) -> Self {
        let client = Client::new(cluster.config()).unwrap();
        let own = keys_where(6, |key| cluster.owner(key) == node);
        let rest = keys_where(6, |key| cluster.owner(key) != node);
        let callers = Self {
            troubled: Load::start(&client, &own, patience),
            others: Load::start(&client, &rest, PATIENT),
            client,
        };
        callers.troubled.goes_on_for(500).await;
        callers
    }

    /// Ends the load; nobody on the other nodes may have noticed a thing. Returns what the troubled ones saw.
    async fn stop(self) -> (Client, Vec<Tally>) {
        let others = self.others.stop().await;
        for tally in &others {
            assert_eq!(
                tally.errors,
                [],
                "{} is not on the node in trouble",
                tally.key
            );
        }
        check_exact(&self.client, &others).await;
        let troubled = self.troubled.stop().await;
        check_books(&self.client).await;
        (self.client, troubled)
    }
}

/// The connections of clients to a server, by id.
fn connections(server: &RedisServer) -> BTreeSet<String> {
    let list = server.raw("CLIENT LIST TYPE normal");
    let id = |line: &str| {
        line.split(' ')
            .find_map(|field| field.strip_prefix("id="))
            .map(str::to_owned)
    };
    list.lines()
        .filter(|line| !line.contains("cmd=client"))
        .filter_map(id)
        .collect()
}

async fn works_again(client: &Client, key: &str) {
    eventually("the slots have an owner again", async || {
        let batch = one("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(0)]);
        client.send(batch, Instant::now() + IMPATIENT).await[0]
            .reply()
            .is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_killed_under_load_is_replaced_and_the_others_do_not_notice() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let callers = Callers::start(&cluster, 1, IMPATIENT).await;
    cluster.server_mut(1).kill();
    let key = keys_where(1, |key| cluster.owner(key) == 1).remove(0);
    callers.others.goes_on_for(1_000).await;
    works_again(&callers.client, &key).await;
    callers.troubled.goes_on_for(1_000).await;
    let (client, troubled) = callers.stop().await;
    assert!(
        troubled.iter().any(|tally| !tally.errors.is_empty()),
        "the kill hit nobody: the test shows nothing"
    );
    check_not_doubled(&client, &troubled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_node_holds_up_its_own_callers_only() {
    // Without a replica nobody takes over, so that the frozen node itself has to answer in the end.
    let cluster = RedisCluster::start(3, 0).await;
    for server in cluster.servers() {
        // The others must not declare it dead: this is about a slow node, not about a failover.
        assert_eq!(
            server.raw("CONFIG SET cluster-node-timeout 15000"),
            "+OK\r\n"
        );
    }
    let callers = Callers::start(&cluster, 1, IMPATIENT).await;
    let others = [0, 2].map(|at| &cluster.servers()[at]);
    let before = others.map(connections);
    cluster.servers()[1].pause();
    let frozen = Instant::now();
    eventually("three seconds have passed", async || {
        frozen.elapsed() > Duration::from_secs(3)
    })
    .await;
    assert!(
        callers.client.stats().waiting < 1_000,
        "{:?}",
        callers.client.stats()
    );
    cluster.servers()[1].resume();
    callers.troubled.goes_on_for(1_000).await;
    eventually(
        "the other nodes have the connections they had",
        async || others.map(connections) == before,
    )
    .await;
    let (client, troubled) = callers.stop().await;
    for tally in &troubled {
        let late = |error: &Outcome| matches!(error, Outcome::Unknown(_) | Outcome::NotSent(_));
        assert!(
            !tally.errors.is_empty() && tally.errors.iter().all(late),
            "{tally:?}"
        );
    }
    check_exact(&client, &troubled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_on_purpose_is_followed_and_a_forced_one_doubles_nothing() {
    let cluster = RedisCluster::start(3, 1).await;
    for server in cluster.servers() {
        assert_eq!(
            server.raw("CONFIG SET repl-diskless-sync-delay 0"),
            "+OK\r\n"
        );
    }
    let callers = Callers::start(&cluster, 0, PATIENT).await;
    for replica in [3, 0, 3] {
        let (replica, old) = (&cluster.servers()[replica], &cluster.servers()[3 - replica]);
        take_over(replica).await;
        callers.troubled.goes_on_for(500).await;
        while !is_followed(replica, old).await {
            take_over(replica).await;
        }
    }
    let (client, troubled) = callers.stop().await;
    check_unnoticed(&troubled);
    check_exact(&client, &troubled).await;

    // Without asking its primary, the replica may miss what was acknowledged last.
    let fresh = |key: &str| troubled.iter().all(|tally| tally.key != key);
    let load = Load::start(
        &client,
        &keys_where(6, |key| fresh(key) && cluster.owner(key) == 3),
        PATIENT,
    );
    load.goes_on_for(500).await;
    assert_eq!(
        cluster.servers()[0].raw("CLUSTER FAILOVER TAKEOVER"),
        "+OK\r\n"
    );
    eventually("the taken over follows", async || {
        cluster.servers()[3].raw("ROLE").contains("slave")
    })
    .await;
    load.goes_on_for(1_000).await;
    check_not_doubled(&client, &load.stop().await).await;
}

/// Makes a replica the primary, with the old primary's help. The others vote once in two node timeouts at most, so the
/// first attempt may come too early; another one would end one that is under way.
async fn take_over(replica: &RedisServer) {
    let mut next = Instant::now();
    eventually("the replica is the primary", async || {
        if Instant::now() >= next {
            next += Duration::from_secs(3);
            let _ = replica.raw("CLUSTER FAILOVER");
        }
        replica.raw("INFO replication").contains("role:master")
    })
    .await;
}

async fn in_step(server: &RedisServer) {
    eventually("the replica is in step", async || has_link(server)).await;
}

/// Waits until the old primary follows the new one. A new primary that got no processor for a node timeout may be voted out
/// again for the old one, which then follows nobody: false.
async fn is_followed(primary: &RedisServer, old: &RedisServer) -> bool {
    let mut followed = false;
    eventually("one of the two follows the other", async || {
        followed = has_link(old);
        followed || has_link(primary)
    })
    .await;
    followed
}

fn has_link(server: &RedisServer) -> bool {
    server
        .raw("INFO replication")
        .contains("master_link_status:up")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_replaced_at_a_new_address_is_found() {
    let mut cluster = RedisCluster::start(3, 0).await;
    // The client knows only the address that goes away.
    let callers = Callers::start(&cluster, 0, PATIENT).await;
    let key = keys_where(1, |key| cluster.owner(key) == 0).remove(0);
    let new =
        RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"])
            .await;
    let meet = format!("CLUSTER MEET 127.0.0.1 {}", new.port());
    assert_eq!(cluster.servers()[0].raw(&meet), "+OK\r\n");
    let replicate = format!("CLUSTER REPLICATE {}", cluster.id(0));
    eventually("the new node follows the old one", async || {
        new.raw(&replicate).starts_with("+OK")
    })
    .await;
    in_step(&new).await;
    take_over(&new).await;
    // Killed before it could name the new one, it would leave callers without an owner until the next look around.
    eventually("nobody asks the old node any more", async || {
        let (old, now) = (echoes(&cluster.servers()[0]), echoes(&new));
        callers.troubled.goes_on_for(300).await;
        echoes(&cluster.servers()[0]) == old && echoes(&new) > now + 20
    })
    .await;
    cluster.server_mut(0).kill();
    callers.troubled.goes_on_for(1_000).await;
    works_again(&callers.client, &key).await;
    let (client, troubled) = callers.stop().await;
    check_unnoticed(&troubled);
    check_exact(&client, &troubled).await;
}

/// A change of roles on purpose is nobody's business: whoever was asked meanwhile says where to go.
fn check_unnoticed(tallies: &[Tally]) {
    for tally in tallies {
        assert_eq!(tally.errors, [], "{}", tally.key);
    }
}

/// How many tokens a server has sent back: it gets them from whoever takes it for the owner of a counter.
fn echoes(server: &RedisServer) -> u64 {
    let stats = server.raw("INFO commandstats");
    let calls = |line: &str| {
        line.strip_prefix("cmdstat_echo:calls=")?
            .split(',')
            .next()?
            .parse()
            .ok()
    };
    stats.lines().find_map(calls).unwrap_or(0)
}
