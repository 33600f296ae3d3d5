//! What holds for any load, in any weather, while slots move and connections break anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use fastrand::Rng;
use proptest::prelude::*;
use tidegate_pipeline::{Arg, Batch, Client, NotSent, Outcome, Reply, Stats};
use tokio::task::JoinSet;

use crate::support::fake::{FakeCluster, Replies, Weather};
use crate::support::{eventually, soon};

/// A failing case is found again by its seed only when it does not depend on the scheduler, so shrinking it says little.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        max_shrink_iters: 8,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn run<T>(case: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(case)
}

fn fair() -> impl Strategy<Value = Weather> {
    let replies = prop_oneof![Just(Replies::Whole), Just(Replies::Chopped)];
    (replies, 0..3_000_u64).prop_map(|(replies, pause)| Weather {
        replies,
        pause: Duration::from_micros(pause),
        cut_within: 0,
    })
}

fn any_weather() -> impl Strategy<Value = Weather> {
    (fair(), prop_oneof![Just(0), 100..20_000_usize]).prop_map(|(weather, cut_within)| Weather {
        cut_within,
        ..weather
    })
}

fn stormy() -> impl Strategy<Value = Weather> {
    (fair(), 400..4_000_usize).prop_map(|(weather, cut_within)| Weather {
        cut_within,
        ..weather
    })
}

/// Waits until nothing is under way, and checks the books.
async fn settle(client: &Client) -> Stats {
    eventually("every written command was answered or lost", async || {
        let stats = client.stats();
        stats.waiting == 0 && stats.commands == stats.replies + stats.lost
    })
    .await;
    client.close().await;
    let stats = client.stats();
    assert_eq!(
        (stats.connections, stats.waiting, stats.opened),
        (0, 0, stats.closed),
        "{stats:?}"
    );
    stats
}

/// Long enough for anything that will succeed.
const PATIENT: Duration = Duration::from_secs(10);

/// How long a caller stays.
enum Patience {
    Until(Duration),
    Cancel(Duration),
}

fn patience(rng: &mut Rng, longest: Duration) -> Patience {
    let short = Duration::from_micros(rng.u64(..3_000));
    match rng.u8(..4) {
        0 => Patience::Until(short),
        1 => Patience::Cancel(short),
        _ => Patience::Until(longest),
    }
}

/// Sends a batch and stays as long as its patience lasts. None when the call was dropped.
async fn call(client: &Client, batch: Batch, patience: &Patience) -> Option<Vec<Outcome>> {
    match *patience {
        Patience::Until(wait) => Some(client.send(batch, Instant::now() + wait).await),
        Patience::Cancel(wait) => tokio::time::timeout(wait, client.send(batch, soon()))
            .await
            .ok(),
    }
}

/// Sends tokens that are different for every command ever sent, and checks that each comes back to its sender.
async fn echo(client: Client, caller: u64, weather: Weather, mut rng: Rng) {
    for turn in 0..12 {
        let token = |place| format!("{caller}:{turn}:{place}:{}", "x".repeat(place * 5));
        let tokens: Vec<String> = (0..rng.usize(1..12)).map(token).collect();
        let mut batch = Batch::new();
        for token in &tokens {
            // As a key, so that the tokens of a batch go to all nodes.
            batch.unit().command("ECHO", &[Arg::Key(token.as_bytes())]);
        }
        let patience = patience(&mut rng, PATIENT);
        let Some(outcomes) = call(&client, batch, &patience).await else {
            continue;
        };
        assert_eq!(outcomes.len(), tokens.len());
        for (token, outcome) in tokens.iter().zip(&outcomes) {
            match outcome {
                Outcome::Reply(reply) => {
                    assert_eq!(reply, &Reply::Bulk(token.clone().into()), "somebody else's")
                }
                Outcome::ServerError(error) => panic!("{error}"),
                error => {
                    let excused = weather.cut_within > 0
                        || matches!(patience, Patience::Until(wait) if wait < PATIENT);
                    assert!(excused, "a patient caller of a fair cluster got {error:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn every_reply_reaches_its_own_caller_and_none_is_left_over(
        seed: u64, weather in any_weather(), callers in 1..24_u64, in_flight in 1..200_usize,
    ) {
        run(async {
            let cluster = FakeCluster::start(3, seed).await;
            cluster.set_weather(weather);
            let mut config = cluster.config();
            config.in_flight_commands = in_flight;
            let client = Client::new(config).unwrap();
            let mut tasks = JoinSet::new();
            for caller in 0..callers {
                tasks.spawn(echo(client.clone(), caller, weather, Rng::with_seed(seed ^ caller)));
            }
            tasks.join_all().await;
            let stats = settle(&client).await;
            assert!(weather.cut_within > 0 || stats.lost == 0, "{stats:?}");
        });
    }
}

/// What callers know about one counter.
#[derive(Debug, Default)]
struct Ledger {
    acknowledged: AtomicU64,
    unknown: AtomicU64,
}

impl Ledger {
    fn enter(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Reply(_) => self.acknowledged.fetch_add(1, SeqCst),
            Outcome::Unknown(_) => self.unknown.fetch_add(1, SeqCst),
            _ => 0,
        };
    }
}

/// One increment, alone with its expiry or in a transaction, and the place of the outcome that tells whether it counted.
fn increment(batch: &mut Batch, key: &str, rng: &mut Rng) -> usize {
    let key = Arg::Key(key.as_bytes());
    let unit = batch.unit();
    if rng.u8(..4) > 0 {
        unit.command("INCRBY", &[key, Arg::Integer(1)])
            .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
        return batch.len() - 2;
    }
    unit.command("MULTI", &[])
        .command("INCRBY", &[key, Arg::Integer(1)])
        .command("EXEC", &[]);
    batch.len() - 1
}

/// Counts on random keys. A dropped call leaves each of its increments unknown.
async fn count(client: Client, keys: Arc<Vec<(String, Ledger)>>, turns: usize, mut rng: Rng) {
    for _ in 0..turns {
        let mut batch = Batch::new();
        let picked: Vec<usize> = (0..rng.usize(1..8))
            .map(|_| rng.usize(..keys.len()))
            .collect();
        let places: Vec<usize> = picked
            .iter()
            .map(|&at| increment(&mut batch, &keys[at].0, &mut rng))
            .collect();
        let outcomes = call(
            &client,
            batch,
            &patience(&mut rng, Duration::from_millis(200)),
        )
        .await;
        for (&at, &place) in picked.iter().zip(&places) {
            match &outcomes {
                Some(outcomes) => keys[at].1.enter(&outcomes[place]),
                None => _ = keys[at].1.unknown.fetch_add(1, SeqCst),
            }
        }
    }
}

fn counters(count: usize) -> Arc<Vec<(String, Ledger)>> {
    // Half of them in one slot, so that a slot that moves is torn apart.
    Arc::new(
        (0..count)
            .map(|at| {
                (
                    format!("{}{at}", if at % 2 == 0 { "{hot}" } else { "" }),
                    Ledger::default(),
                )
            })
            .collect(),
    )
}

/// Moves the slots of the counters a step at a time, one for every few increments that the cluster runs.
async fn keep_moving(cluster: &FakeCluster, keys: &[String], every: u64, mut rng: Rng) {
    loop {
        let ran = cluster.ran();
        cluster.shuffle(&keys[rng.usize(..keys.len())]);
        // Callers that all wait for the move to go on must not wait for ever.
        let _ =
            tokio::time::timeout(Duration::from_millis(5), ran_until(cluster, ran + every)).await;
    }
}

/// Moves one slot from node to node: key by key, and then it stays for a while.
async fn move_and_rest(cluster: &FakeCluster, key: &str) {
    loop {
        let (ran, arrived) = (cluster.ran(), cluster.shuffle(key));
        let (increments, at_most) = if arrived { (200, 100) } else { (10, 2) };
        let _ = tokio::time::timeout(
            Duration::from_millis(at_most),
            ran_until(cluster, ran + increments),
        )
        .await;
    }
}

async fn ran_until(cluster: &FakeCluster, ran: u64) {
    while cluster.ran() < ran {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn no_increment_is_lost_or_counted_twice(seed: u64, weather in stormy(), callers in 1..16_u64, every in 1..40_u64) {
        run(async {
            let cluster = FakeCluster::start(3, seed).await;
            cluster.set_weather(weather);
            let client = Client::new(cluster.config()).unwrap();
            let keys = counters(12);
            let names: Vec<String> = keys.iter().map(|(name, _)| name.clone()).collect();
            let mut tasks = JoinSet::new();
            for caller in 0..callers {
                tasks.spawn(count(client.clone(), Arc::clone(&keys), 15, Rng::with_seed(seed ^ caller)));
            }
            tokio::select! {
                () = keep_moving(&cluster, &names, every, Rng::with_seed(seed)) => {}
                _ = tasks.join_all() => {}
            }
            settle(&client).await;
            for (key, ledger) in keys.iter() {
                let counted = cluster.counter(key) as u64;
                let (acknowledged, unknown) = (ledger.acknowledged.load(SeqCst), ledger.unknown.load(SeqCst));
                assert!((acknowledged..=acknowledged + unknown).contains(&counted), "{key} is {counted}: {ledger:?}");
            }
        });
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn callers_do_not_notice_that_slots_move(seed: u64, weather in fair(), callers in 1..16_u64) {
        run(async {
            let cluster = FakeCluster::start(3, seed).await;
            cluster.set_weather(weather);
            let client = Client::new(cluster.config()).unwrap();
            let keys: Vec<String> = (0..6).map(|at| format!("{{hot}}{at}")).collect();
            let mut tasks = JoinSet::new();
            for _ in 0..callers {
                tasks.spawn(count_and_compare(client.clone(), keys.clone()));
            }
            // It rests long enough that no call sees more moves than the redirects it may follow.
            tokio::select! {
                () = move_and_rest(&cluster, &keys[0]) => {}
                _ = tasks.join_all() => {}
            }
            for key in &keys {
                assert_eq!(cluster.counter(key) as u64, callers * 20, "{key}");
            }
            assert_eq!(settle(&client).await.lost, 0);
        });
    }
}

/// Increments each key and reads all of them at once, which moving keys make the server refuse for a while.
async fn count_and_compare(client: Client, keys: Vec<String>) {
    for _ in 0..20 {
        let mut batch = Batch::new();
        for key in &keys {
            let key = Arg::Key(key.as_bytes());
            batch
                .unit()
                .command("INCRBY", &[key, Arg::Integer(1)])
                .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
        }
        let all: Vec<Arg<'_>> = keys.iter().map(|key| Arg::Key(key.as_bytes())).collect();
        batch.unit().command("MGET", &all);
        let outcomes = client.send(batch, soon()).await;
        for (at, outcome) in outcomes.iter().enumerate() {
            assert!(outcome.reply().is_ok(), "command {at}: {outcome:?}");
        }
        let Ok(Reply::Array(values)) = outcomes[outcomes.len() - 1].reply() else {
            panic!("{outcomes:?}")
        };
        assert_eq!(values.len(), keys.len());
    }
}

#[tokio::test]
async fn nodes_that_name_each_other_are_asked_a_bounded_number_of_times() {
    let cluster = FakeCluster::start(2, 1).await;
    let client = Client::new(cluster.config()).unwrap();
    cluster.disown("k");
    for turn in 1..=3 {
        let mut batch = Batch::new();
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]);
        let outcomes = client
            .send(batch, Instant::now() + Duration::from_millis(400))
            .await;
        assert!(
            !matches!(&outcomes[0], Outcome::Reply(_) | Outcome::ServerError(_)),
            "{outcomes:?}"
        );
        // One question and five redirects at once; then it asks after waits that double.
        let asked = cluster.redirected();
        assert!(
            (turn * 6..turn * 40).contains(&asked),
            "asked {asked} times in {turn} calls"
        );
    }
    assert_eq!(cluster.ran(), 0);
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn connections_stay_in_their_bounds(
        seed: u64, min in 0..3_usize, more in 0..4_usize, in_flight in 1..8_usize, callers in 8..64_u64,
    ) {
        run(async {
            let cluster = FakeCluster::start(1, seed).await;
            // Slower than the delay from which another connection is worth its price.
            cluster.set_weather(Weather { pause: Duration::from_millis(12), ..Weather::default() });
            let mut config = cluster.single();
            (config.min_connections, config.max_connections) = (min, (min + more).max(1));
            config.in_flight_commands = in_flight;
            config.idle_timeout = Duration::from_millis(40);
            let max = config.max_connections as u64;
            let client = Client::new(config).unwrap();
            let mut tasks = JoinSet::new();
            for caller in 0..callers {
                let client = client.clone();
                tasks.spawn(async move {
                    for turn in 0..6 {
                        let token = format!("{caller}:{turn}");
                        let mut batch = Batch::new();
                        batch.unit().command("ECHO", &[Arg::Bytes(token.as_bytes())]);
                        let outcomes = client.send(batch, soon()).await;
                        assert_eq!(outcomes[0].bytes().unwrap(), Some(token.as_bytes()));
                        let stats = client.stats();
                        assert!(stats.connections <= max, "{stats:?} with at most {max}");
                    }
                });
            }
            tasks.join_all().await;
            let idle = min as u64;
            eventually("the excess is closed", async || client.stats().connections <= idle.max(1)).await;
            assert_eq!(client.stats().replies, callers * 6);
        });
    }

    #[test]
    fn what_waits_for_a_black_hole_is_bounded(
        seed: u64, commands in 1..200_usize, size in 0..400_usize, kilobytes in 1..32_usize, calls in 200..1200_usize,
    ) {
        run(async {
            let cluster = FakeCluster::start(1, seed).await;
            cluster.set_weather(Weather { replies: Replies::Swallowed, ..Weather::default() });
            let mut config = cluster.single();
            (config.queue_commands, config.queue_bytes) = (commands, kilobytes << 10);
            (config.in_flight_commands, config.max_connections) = (10, 1);
            let client = Client::new(config).unwrap();
            let value = vec![b'x'; size];
            let deadline = Instant::now() + Duration::from_millis(300);
            let mut refused = 0;
            let mut tasks = JoinSet::new();
            for _ in 0..calls {
                let mut batch = Batch::new();
                batch.unit().command("ECHO", &[Arg::Bytes(&value)]);
                let client = client.clone();
                tasks.spawn(async move {
                    let outcome = client.send(batch, deadline).await.remove(0);
                    (outcome, client.stats().waiting as usize)
                });
            }
            // At least this many bytes each: a header, a name, the value.
            let most = commands.min(((kilobytes << 10) / (size + 20)).max(1));
            for (outcome, waiting) in tasks.join_all().await {
                assert!(waiting <= most, "{waiting} wait, at most {most} may");
                match outcome {
                    Outcome::NotSent(NotSent::Overloaded { .. }) => refused += 1,
                    Outcome::NotSent(NotSent::DeadlineExceeded { .. }) | Outcome::Unknown(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            // Ten are in flight, and the rest is waiting or refused.
            assert!(refused + most + 10 >= calls, "{refused} of {calls} refused");
            client.close().await;
            assert_eq!(client.stats().waiting, 0);
        });
    }
}
