//! Connections that break at random bytes in both directions, plain and encrypted, while increments are pipelined.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_pipeline::{Arg, Batch, Client, Config, ConnectPace, Outcome, Reply};
use tokio::task::JoinSet;

use crate::support::certificates::Certificates;
use crate::support::fake::{FakeCluster, Weather};
use crate::support::load::check_books;

/// A run by hand sets this to 10000 or more: how many connections break in each test.
const CONNECTIONS: &str = "TIDEGATE_FAULT_RESETS";

#[expect(
    clippy::disallowed_methods,
    reason = "how many connections break is up to whoever starts the tests"
)]
fn connections() -> u64 {
    let number = std::env::var(CONNECTIONS).ok();
    number.map_or(150, |number| {
        number
            .parse()
            .expect("TIDEGATE_FAULT_RESETS is a number of connections")
    })
}

/// A connection breaks after fewer bytes than one of these: in a handshake, in a command, after some TLS records, or after
/// some turns.
const CUT_WITHIN: [usize; 4] = [3_000, 20_000, 40_000, 60_000];

const CALLERS: u64 = 48;

/// Counts on keys that nobody else counts on. Returns those that may have been counted.
async fn count(
    client: Client,
    cluster: Arc<FakeCluster>,
    caller: u64,
    mut rng: Rng,
    until: u64,
) -> HashSet<String> {
    let (mut unknown, mut turn) = (HashSet::new(), 0);
    while client.stats().closed < until {
        turn += 1;
        let size = rng.usize(1..600);
        let name = |place| format!("{caller}:{turn}:{place}:{}", "x".repeat(size));
        let keys: Vec<String> = (0..rng.usize(1..100)).map(name).collect();
        let mut batch = Batch::new();
        for key in &keys {
            let key = Arg::Key(key.as_bytes());
            batch
                .unit()
                .command("INCRBY", &[key, Arg::Integer(1)])
                .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
        }
        let outcomes = client
            .send(batch, Instant::now() + Duration::from_secs(2))
            .await;
        for (key, outcome) in keys.into_iter().zip(outcomes.chunks(2)) {
            match &outcome[0] {
                Outcome::Reply(Reply::Integer(1)) => {
                    assert_eq!(cluster.forget(&key), 1, "{key} was answered")
                }
                Outcome::Unknown(_) => _ = unknown.insert(key),
                // What ran nevertheless is found at the end.
                Outcome::NotSent(_) | Outcome::Rejected(_) => {}
                other => panic!("{key} was counted by one call only: {other:?}"),
            }
        }
    }
    unknown
}

/// What clients connect to.
struct Servers {
    nodes: usize,
    certificates: Option<Certificates>,
}

/// The servers have a thread of their own: a connection must be able to break while the client writes to it.
fn check(servers: &Servers) {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let (theirs, ours, seed) = (runtime(), runtime(), fastrand::u64(..));
    let acceptor = servers.certificates.as_ref().map(Certificates::acceptor);
    let cluster = theirs.block_on(FakeCluster::start_with(servers.nodes, seed, acceptor));
    let mut config = if servers.nodes == 1 {
        cluster.single()
    } else {
        cluster.config()
    };
    config.tls = servers.certificates.as_ref().map(Certificates::connector);
    let many = 1_000_000.try_into().unwrap();
    config.connect_pace = ConnectPace::new(many, many);
    // All that waits is written at once, so that a connection breaks within a write.
    (config.in_flight_commands, config.in_flight_bytes) = (1_000_000, 64 << 20);
    ours.block_on(break_and_count(cluster, config, seed));
}

async fn break_and_count(cluster: FakeCluster, config: Config, seed: u64) {
    let (client, cluster, until) = (
        Client::new(config).unwrap(),
        Arc::new(cluster),
        connections(),
    );
    let mut rng = Rng::with_seed(seed);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        callers.spawn(count(
            client.clone(),
            Arc::clone(&cluster),
            caller,
            rng.fork(),
            until,
        ));
    }
    while client.stats().closed < until {
        let cut_within = rng.choice(CUT_WITHIN).expect("there are some");
        cluster.set_weather(Weather {
            cut_within,
            ..Weather::default()
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.set_weather(Weather::default());
    let unknown: HashSet<String> = callers.join_all().await.into_iter().flatten().collect();
    check_books(&client).await;
    client.close().await;
    let counters = cluster.counters();
    let known = counters
        .iter()
        .filter(|(key, _)| !unknown.contains(key))
        .count();
    let doubled = counters.iter().filter(|(_, value)| *value != 1).count();
    assert_eq!(
        (known, doubled),
        (0, 0),
        "counted although not sent or counted again; counted twice; seed {seed}"
    );
    assert!(
        !unknown.is_empty(),
        "nothing was in flight when connections broke: the test shows nothing"
    );
}

#[test]
fn plain_connections_that_break_anywhere_double_no_increment() {
    check(&Servers {
        nodes: 1,
        certificates: None,
    });
}

/// A write of several TLS records may fail after some of them have left: what they hold may have run.
#[test]
fn encrypted_connections_that_break_anywhere_double_no_increment() {
    check(&Servers {
        nodes: 1,
        certificates: Some(Certificates::new("127.0.0.1")),
    });
}

#[test]
fn encrypted_connections_to_a_cluster_that_break_anywhere_double_no_increment() {
    check(&Servers {
        nodes: 3,
        certificates: Some(Certificates::new("127.0.0.1")),
    });
}
