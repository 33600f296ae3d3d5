//! Primaries of a cluster that are killed under creations, each after its replica has heard nothing more for a while. What a primary took
//! to its grave must not have been acknowledged, if acknowledged writes wait for replicas.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Client, Config};
use tidegate_workflow::{Engine, Partition, Store, WorkflowId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::replicas::{create, is_unknown, open_waiting};
use super::{open_with, options};
use crate::contract::PARTITIONS;
use crate::support::server as engine_over;

/// Each creates one workflow at a time.
const WRITERS: usize = 16;
/// More creations than can have been on their way when the last connection of a replica was cut.
const ALONE: usize = 2 * WRITERS;
/// How long anything may take that comes by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the writers were told.
#[derive(Debug, Default)]
struct Told {
    acknowledged: Vec<WorkflowId>,
    /// How often too few replicas had what was written.
    unknown: usize,
}

impl Told {
    fn in_partition(&self, partition: Partition) -> impl Iterator<Item = &WorkflowId> {
        self.acknowledged
            .iter()
            .filter(move |id| id.partition() == partition)
    }
}

struct Writers {
    told: Arc<Mutex<Told>>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(engine: &Engine, round: usize) -> Self {
        let (told, stop) = (
            Arc::new(Mutex::new(Told::default())),
            watch::Sender::new(false),
        );
        let write = |writer| {
            write(
                engine.clone(),
                format!("{round}-{writer}"),
                Arc::clone(&told),
                stop.subscribe(),
            )
        };
        let tasks = (0..WRITERS)
            .map(|writer| tokio::spawn(write(writer)))
            .collect();
        Self { told, stop, tasks }
    }

    fn look<T>(&self, at: impl FnOnce(&Told) -> T) -> T {
        at(&self.told.lock().unwrap())
    }

    async fn end(self) -> Vec<WorkflowId> {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.unwrap();
        }
        std::mem::take(&mut self.told.lock().unwrap().acknowledged)
    }
}

async fn write(engine: Engine, name: String, told: Arc<Mutex<Told>>, stop: watch::Receiver<bool>) {
    for number in 0.. {
        if *stop.borrow() {
            return;
        }
        let created = create(&engine, &format!("{name}-{number}")).await;
        let mut told = told.lock().unwrap();
        told.unknown += usize::from(is_unknown(&created));
        told.acknowledged.extend(created);
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kills so many primaries, one after the other. Returns which workflows were acknowledged, and how many of them are gone.
async fn kill_primaries(
    cluster: &mut RedisCluster,
    store: &Store,
    kills: usize,
) -> (Vec<WorkflowId>, usize) {
    let engine = engine_over(store).await;
    let mut acknowledged = Vec::new();
    for kill in 0..kills {
        let writers = Writers::start(&engine, kill);
        kill_one(cluster, &writers, Partition(kill as u16 % PARTITIONS)).await;
        let so_far = writers.look(|told| told.acknowledged.len());
        let go_on = || writers.look(|told| told.acknowledged.len() >= so_far + 100);
        until("creations go on", go_on).await;
        acknowledged.extend(writers.end().await);
        until("the cluster is whole", || {
            cluster.servers().iter().all(is_in_step)
        })
        .await;
    }
    let mut gone = 0;
    for ids in acknowledged.chunks(500) {
        gone += store
            .load(ids)
            .await
            .unwrap()
            .iter()
            .filter(|stored| stored.is_none())
            .count();
    }
    (acknowledged, gone)
}

/// Kills the primary of a partition when it has something that its replica has not, and brings it back after the failover: a primary
/// that comes back empty before would erase its replica.
async fn kill_one(cluster: &mut RedisCluster, writers: &Writers, partition: Partition) {
    until("creations", || {
        writers.look(|told| told.in_partition(partition).count() > ALONE)
    })
    .await;
    let some = writers.look(|told| told.in_partition(partition).next().unwrap().to_string());
    let has = |server: &RedisServer| {
        is_primary(server) && server.raw(&format!("KEYS *{some}")).contains(&some)
    };
    let victim = cluster
        .servers()
        .iter()
        .position(has)
        .expect("an acknowledged workflow is there");
    let replica = replica_of(cluster, victim);
    // What is sent to a process that stands still is read when it goes on. So its connection is cut as well.
    cluster.servers()[replica].pause();
    let _number = cluster.servers()[victim].raw("CLIENT KILL TYPE replica");
    let (alone, unknown) =
        writers.look(|told| (told.in_partition(partition).count() + ALONE, told.unknown));
    let has_more = || {
        writers.look(|told| told.unknown > unknown || told.in_partition(partition).count() > alone)
    };
    until("something that only the primary has", has_more).await;
    let name = cluster.id(victim);
    cluster.server_mut(victim).kill();
    cluster.servers()[replica].resume();
    let heir = &cluster.servers()[replica];
    until("a failover", || {
        took_over(&heir.raw("CLUSTER NODES"), &name)
    })
    .await;
    cluster.server_mut(victim).restart().await;
}

fn is_primary(server: &RedisServer) -> bool {
    server.raw("INFO replication").contains("role:master")
}

fn replica_of(cluster: &RedisCluster, primary: usize) -> usize {
    let port = format!("master_port:{}\r\n", cluster.servers()[primary].port());
    let follows = |server: &RedisServer| server.raw("INFO replication").contains(&port);
    cluster
        .servers()
        .iter()
        .position(follows)
        .expect("each primary has a replica")
}

/// Whether another node has the slots of the one that was killed.
fn took_over(nodes: &str, killed: &str) -> bool {
    let has_slots = |line: &&str| {
        line.split(' ').count() > 8 && line.contains("master") && !line.contains("fail")
    };
    nodes
        .lines()
        .any(|line| line.starts_with(killed) && line.contains("fail"))
        && nodes.lines().filter(has_slots).count() == 3
}

/// Whether a node sees none that fails, and is in step if it is a replica.
fn is_in_step(server: &RedisServer) -> bool {
    let nodes = server.raw("CLUSTER NODES");
    let about = server.raw("INFO replication");
    !nodes.contains("fail")
        && nodes.lines().filter(|line| line.contains("slave")).count() == 3
        && (about.contains("role:master") || about.contains("master_link_status:up"))
}

/// How many primaries are killed: more by hand.
#[expect(
    clippy::disallowed_methods,
    reason = "how often is up to whoever starts the test"
)]
fn kills() -> usize {
    std::env::var("TIDEGATE_TEST_KILLS").map_or(2, |kills| kills.parse().expect("it is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_takes_nothing_along_that_was_acknowledged() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let store = open_waiting(Config::cluster(cluster.addresses()), Duration::from_secs(2)).await;
    let (acknowledged, gone) = kill_primaries(&mut cluster, &store, kills()).await;
    assert_eq!(gone, 0, "of {} that were acknowledged", acknowledged.len());
}

/// The test above proves something only if it can lose what is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_takes_along_what_no_replica_was_waited_for() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let client = Client::new(Config::cluster(cluster.addresses())).unwrap();
    let store = open_with(&client, options("tg:")).await;
    let (acknowledged, gone) = kill_primaries(&mut cluster, &store, 1).await;
    assert!(
        gone > 0,
        "none of {} that were acknowledged",
        acknowledged.len()
    );
}
