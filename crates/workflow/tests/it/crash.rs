//! Processes are killed at any moment. What anybody was told is so afterwards, and all that was begun comes to its end.

mod load;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Address, Client, Config};
use tidegate_workflow::{
    Engine, JobState, RedisOptions, RedisStore, SqliteOptions, SqliteStore, StartMode, Store,
    Timestamp,
};

use crate::model::check::whole_store;
use crate::support::{at, new};
use load::{Clock, Told, finish, serve, workflow};

/// Set for the process that serves: which store, and from when its clock runs, in microseconds.
const SERVE: &str = "TIDEGATE_TEST_CRASH_SERVE";
const PARTITIONS: u16 = 4;
/// How long a fault may last until the test is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Kills the child whatever happens to the test.
struct Server {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts this program again, to serve a store.
    fn start(place: &str, from: Timestamp) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "crash::a_process_that_serves_until_it_is_killed",
                "--nocapture",
            ])
            .env(SERVE, format!("{place} {}", from.micros()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Hears what callers are told, until they were told `more` things.
    fn listen(&mut self, told: &mut Told, more: usize) {
        let enough = told.lines + more;
        while told.lines < enough {
            let line = self
                .lines
                .next()
                .expect("the server serves until it is killed")
                .unwrap();
            told.hear(&line);
        }
    }

    /// Ends it as a crash would, and hears the rest of what it had said.
    fn kill(mut self, told: &mut Told) {
        self.process.kill().unwrap();
        for line in self.lines.by_ref().map_while(Result::ok) {
            told.hear(&line);
        }
    }
}

fn open_sqlite(path: &Path) -> Store {
    Store::Sqlite(SqliteStore::open(path, &SqliteOptions::new(PARTITIONS).unwrap()).unwrap())
}

async fn open_redis(config: Config) -> Store {
    let options = RedisOptions::new("crash:", PARTITIONS, Duration::from_secs(1)).unwrap();
    Store::Redis(
        RedisStore::open(Client::new(config).unwrap(), options)
            .await
            .unwrap(),
    )
}

async fn open(place: &str) -> Store {
    match place.split_once(':').unwrap() {
        ("sqlite", path) => open_sqlite(Path::new(path)),
        (_, port) => {
            open_redis(Config::single(Address::Tcp {
                host: "127.0.0.1".to_owned(),
                port: port.parse().unwrap(),
            }))
            .await
        }
    }
}

/// The child of the other tests; by itself it has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_serves_until_it_is_killed() {
    #[expect(
        clippy::disallowed_methods,
        reason = "this process may be the child of a test, which is told so"
    )]
    let Ok(serving) = std::env::var(SERVE) else {
        return;
    };
    let (place, from) = serving.split_once(' ').unwrap();
    let clock = Clock::starting(Timestamp::from_micros(from.parse().unwrap()));
    let say: load::Say = Arc::new(|line| println!("\n{line}"));
    let (_engine, mut tasks) = serve(&open(place).await, clock, &say).await;
    // The parent kills this process; should it be gone itself, the end is bounded.
    let ended = tokio::time::timeout(PATIENCE * 2, tasks.join_next()).await;
    panic!("{ended:?}");
}

/// All that was told is so, and rows and states agree.
async fn check_told(engine: &Engine, told: &Told) {
    let snapshots = whole_store(engine).await;
    for (key, id) in &told.created {
        assert!(
            snapshots.contains_key(id),
            "workflow {id} was created with key {key} and is gone"
        );
    }
    for (id, job) in &told.succeeded {
        let state = snapshots[id].jobs()[usize::from(*job)].state;
        assert_eq!(state, JobState::Succeeded, "job {job} of {id}");
    }
    // Whoever creates again because the answer was lost finds what there is.
    for (key, id) in told.created.iter().rev().take(20) {
        let again = engine
            .create(vec![new(workflow(key.clone()), StartMode::Now)], at(0))
            .await
            .remove(0)
            .unwrap();
        assert_eq!((again.workflow, again.existing), (*id, true));
    }
}

/// All workflows of a store come to their end.
async fn check_finish(store: &Store, told: &Told, from: Timestamp) {
    let (engine, _) = finish(store, from).await;
    let snapshots = whole_store(&engine).await;
    for (id, snapshot) in &snapshots {
        assert!(
            snapshot.meta().status.is_over(),
            "{id} is {:?}: {:?}",
            snapshot.meta().status,
            snapshot.states()
        );
    }
    assert!(snapshots.len() >= told.created.len().min(10));
}

/// Kills servers of a store, each after a while at random.
async fn killed_again_and_again(place: &str) {
    let seed = fastrand::u64(..);
    let mut told = Told::default();
    let mut rng = fastrand::Rng::with_seed(seed);
    let clock = Clock::starting(at(0));
    for _ in 0..5 {
        let lines = rng.usize(1..400);
        let place_now = place.to_owned();
        let mut server = Server::start(&place_now, clock.now());
        told = tokio::task::spawn_blocking(move || {
            server.listen(&mut told, lines);
            server.kill(&mut told);
            told
        })
        .await
        .unwrap();
        let store = open(place).await;
        let engine = crate::support::server(&store).await;
        check_told(&engine, &told).await;
        engine.close().await;
        close(store).await;
    }
    assert!(
        !told.created.is_empty() && !told.succeeded.is_empty(),
        "seed {seed}"
    );
    let store = open(place).await;
    check_finish(&store, &told, clock.now()).await;
}

async fn close(store: Store) {
    if let Store::Sqlite(store) = store {
        store.close().await;
    }
}

#[tokio::test]
async fn a_killed_server_over_sqlite_loses_nothing_and_the_next_one_finishes() {
    let directory = tempfile::tempdir().unwrap();
    killed_again_and_again(&format!(
        "sqlite:{}",
        directory.path().join("crash.db").display()
    ))
    .await;
}

#[tokio::test]
async fn a_killed_server_over_redis_loses_nothing_and_the_next_one_finishes() {
    let redis = RedisServer::start().await;
    killed_again_and_again(&format!("redis:{}", redis.port())).await;
}

#[tokio::test]
async fn a_killed_redis_that_writes_a_log_loses_nothing_and_its_server_goes_on() {
    let mut redis =
        RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let place = format!("redis:{}", redis.port());
    let clock = Clock::starting(at(0));
    let mut server = Server::start(&place, clock.now());
    let mut told = Told::default();
    for _ in 0..3 {
        (server, told) = tokio::task::spawn_blocking(move || {
            server.listen(&mut told, fastrand::usize(50..400));
            (server, told)
        })
        .await
        .unwrap();
        redis.kill();
        redis.restart().await;
    }
    let told = tokio::task::spawn_blocking(move || {
        server.listen(&mut told, 200);
        server.kill(&mut told);
        told
    })
    .await
    .unwrap();
    let store = open(&place).await;
    check_told(&crate::support::server(&store).await, &told).await;
    check_finish(&store, &told, clock.now()).await;
}

/// What a replica had not received is gone, with all that belongs to it: the rest is whole and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_loses_a_primary_finishes_what_it_has() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let store = open_redis(cluster.config()).await;
    let clock = Clock::starting(at(0));
    let (told, say) = Told::listener();
    let (engine, mut tasks) = serve(&store, clock, &say).await;
    let lines = || told.lock().unwrap().lines;
    let goes_on = async |more: usize| {
        let enough = lines() + more;
        let begin = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while lines() < enough {
            assert!(begin.elapsed() < PATIENCE, "nothing goes on");
            ticks.tick().await;
        }
    };
    goes_on(300).await;
    cluster.server_mut(0).kill();
    // Jobs of the lost partitions wait; when the replica took over, all of them go on.
    goes_on(2_000).await;
    tasks.abort_all();
    while tasks
        .join_next()
        .await
        .is_some_and(|ended| ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()))
    {}
    assert!(tasks.is_empty(), "a task of the server failed");
    engine.close().await;
    let told = told.lock().unwrap().clone();
    check_finish(&store, &told, clock.now()).await;
}
