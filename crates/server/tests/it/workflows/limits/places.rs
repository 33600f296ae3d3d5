//! A limit of ten jobs at work at once, over two servers with one Redis, while workers and servers are killed. Workers count themselves: there are
//! never eleven at work; after the dead have lost their places there are ten again; and all jobs end.

mod slots;
mod worker;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_pipeline::test_util::RedisServer;

use super::super::kill::Served;
use super::super::{ask, found, redis};
use crate::support::{PATIENCE, number};
use slots::Slots;
use worker::Worker;

/// The name of the test, by which workers start it.
const TEST: &str = "workflows::limits::places::never_more_than_ten_are_at_work_while_workers_and_servers_are_killed";
/// How many seeds there are, from 0 on, and the only one. By hand more.
const SEEDS: &str = "TIDEGATE_LIMITS_SEEDS";
const SEED: &str = "TIDEGATE_LIMITS_SEED";

const PLACES: usize = 10;
const WORKERS: usize = 14;
const WORKFLOWS: usize = 10;
const JOBS_OF_EACH: usize = 100;
/// In seconds; the shortest that a worker can ask for.
const LEASE: u64 = 5;
/// One job of a hundred is longer than a lease.
const LONG: u64 = 6_500;
/// So many jobs are left after the last kill: enough for all workers until the dead have lost their places.
const LEFT: usize = 450;

#[test]
fn never_more_than_ten_are_at_work_while_workers_and_servers_are_killed() {
    if let Some(told) = worker::is_worker() {
        return worker::work(told);
    }
    let seeds = match number(SEED) {
        Some(seed) => seed..seed + 1,
        None => 0..number(SEEDS).unwrap_or(1),
    };
    for seed in seeds {
        let (kills, longest) = Stage::start(Rng::with_seed(seed)).play();
        eprintln!(
            "{SEED}={seed}: after each of {kills} kills ten were at work again within {longest:.1?}"
        );
    }
}

/// Servers and workers, and who kills them.
struct Stage {
    rng: Rng,
    servers: [Served; 2],
    workers: Vec<Worker>,
    slots: Slots,
    workflows: Vec<String>,
    folder: TempDir,
    _redis: RedisServer,
}

impl Stage {
    fn start(mut rng: Rng) -> Self {
        let (redis, folder) = (redis(), tempfile::tempdir().unwrap());
        let store = [("REDIS_URL", redis.address().to_string())];
        let servers = [Served::start(&store), Served::start(&store)];
        let workflows = (0..WORKFLOWS)
            .map(|_| create(servers[0].api, &mut rng))
            .collect();
        let slots = Slots::of(folder.path());
        let mut stage = Self {
            rng,
            servers,
            workers: Vec::new(),
            slots,
            workflows,
            folder,
            _redis: redis,
        };
        stage.fill_up();
        stage
    }

    /// Starts workers until there are enough.
    fn fill_up(&mut self) {
        let servers = self.addresses();
        let missing = WORKERS - self.workers.len();
        self.workers
            .extend((0..missing).map(|_| Worker::start(&servers, self.folder.path())));
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        self.servers.each_ref().map(|server| server.api)
    }

    /// Kills while there is work, and waits for the end of all jobs. Returns how often somebody was killed, and after what time at most there were
    /// ten at work again.
    fn play(mut self) -> (usize, Duration) {
        let (mut kills, mut longest) = (0, Duration::ZERO);
        self.await_that("ten are at work", |stage| stage.slots.taken() == PLACES);
        while self.open() > LEFT {
            self.strike();
            kills += 1;
            let begin = Instant::now();
            self.await_that("ten are at work again", |stage| {
                stage.slots.taken() == PLACES
            });
            longest = longest.max(begin.elapsed());
        }
        let mut open = self.open();
        while open > 0 {
            self.await_that("more jobs end", |stage| stage.open() < open);
            open = self.open();
        }
        self.workers.clear();
        self.servers.iter_mut().for_each(Served::kill);
        assert_eq!(self.servers[0].check_store(), WORKFLOWS as u64);
        (kills, longest)
    }

    /// Kills some workers or a server or both, and starts them again.
    fn strike(&mut self) {
        std::thread::park_timeout(Duration::from_millis(self.rng.u64(50..500)));
        let (whom, number) = (self.rng.u8(..3), self.rng.usize(1..=WORKERS / 2));
        if whom != 0 {
            self.rng.shuffle(&mut self.workers);
            self.workers.truncate(WORKERS - number);
        }
        if whom != 1 {
            let which = self.rng.usize(..2);
            self.servers[which].kill();
            std::thread::park_timeout(Duration::from_millis(self.rng.u64(..300)));
            self.servers[which].start_again();
        }
        self.fill_up();
    }

    #[track_caller]
    fn await_that(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(
                Instant::now() < until,
                "waited in vain: {what}; {} are at work, {} jobs are open",
                self.slots.taken(),
                self.open()
            );
            assert_eq!(self.slots.crowd(), None, "eleven are at work");
            assert!(
                !self.workers.iter_mut().any(Worker::has_ended),
                "a worker gave up"
            );
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// How many jobs have not ended.
    fn open(&self) -> usize {
        let open = |id: &String| {
            let shown = found(ask(
                self.servers[0].api,
                "GET",
                &format!("/v1/workflows/{id}?view=summary"),
                &[],
                "",
            ));
            ["waiting", "scheduled", "ready", "running"]
                .map(|state| shown["job_counts"][state].as_u64().unwrap())
        };
        self.workflows.iter().flat_map(open).sum::<u64>() as usize
    }
}

/// A workflow of jobs that could all run at once but for their limit. Returns its id.
fn create(server: SocketAddr, rng: &mut Rng) -> String {
    let limits = json!([{"concurrency": PLACES, "of": "queue"}]);
    let mut job = |at: usize| {
        let length = if at == 0 { LONG } else { rng.u64(100..300) };
        json!({"name": format!("job {at}"), "handler": "work", "params": {"ms": length}, "limits": limits})
    };
    let jobs: Vec<Value> = (0..JOBS_OF_EACH).map(&mut job).collect();
    let body = json!({"name": "eager", "jobs": jobs}).to_string();
    found(ask(server, "POST", "/v1/workflows", &[], &body))["id"]
        .as_str()
        .unwrap()
        .to_owned()
}
