//! Several servers of one store: who looks where, and how workers hear of jobs that another server made ready.

mod cost;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    ClaimMode, Claimed, Engine, HeartbeatQuery, JobState, Partition, RedisOptions, RedisStore,
    Retry, ServerDescription, SimulatedStore, StartMode, Store, Timestamp, WorkflowId,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{
    at, claim, create, create_of, definition, failure, names, redis, report, server, state,
    succeed, take,
};

on_every_shared_store! {
    partitions_are_shared_out_and_workflows_are_made_at_home
    a_worker_hears_of_a_job_that_another_server_made_ready
    what_was_lost_is_found_by_a_look
    what_another_server_served_is_no_gap
    what_another_server_took_is_tried_once
    what_another_server_took_hides_no_other_job
    an_urgent_job_elsewhere_goes_before_all_that_is_here
    an_old_job_elsewhere_goes_before_what_is_here
    a_timer_is_told_to_the_home_of_its_partition
    a_server_that_is_silent_loses_its_homes_and_harms_nothing
    a_pause_is_heard_of
}

const SOON: Duration = Duration::from_secs(5);

/// A server that says that it lives, and listens until it is dropped.
struct Server {
    engine: Engine,
    listens: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listens.abort();
    }
}

impl Server {
    async fn start(store: &Store) -> Self {
        let engine = server(store).await;
        let listener = engine.clone();
        let listens = tokio::spawn(async move { listener.listen(|| at(0)).await });
        engine
            .heartbeat(
                &ServerDescription::default(),
                at(0),
                HeartbeatQuery::MembersOnly,
            )
            .await
            .unwrap();
        Self { engine, listens }
    }

    async fn beat(&self, now: Timestamp) {
        self.engine
            .heartbeat(
                &ServerDescription::default(),
                now,
                HeartbeatQuery::MembersOnly,
            )
            .await
            .unwrap();
    }

    fn homes(&self) -> BTreeSet<Partition> {
        let servers = self.engine.members();
        let own = servers
            .iter()
            .find(|server| server.id == self.engine.server_id())
            .unwrap();
        own.partitions.iter().copied().collect()
    }
}

/// So many servers that know of each other and hear each other.
async fn servers(store: &Store, number: usize) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..number {
        servers.push(Server::start(store).await);
    }
    for server in &servers {
        server.beat(at(0)).await;
    }
    for server in &servers {
        until(|| server.engine.receives_notifications()).await;
    }
    servers
}

async fn until(done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < SOON, "it does not come about");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// As a worker does: claims, and when there is nothing waits.
async fn work(engine: &Engine) -> Vec<Claimed> {
    let claim = claim(1);
    loop {
        let arrival = engine.arrival(&claim.queues);
        // As servers do for a worker that waits.
        let leases = engine
            .lease_except(&claim, &[], ClaimMode::LongPoll, at(1))
            .await
            .unwrap();
        if !leases.is_empty() {
            return engine.deliver(leases).await.unwrap();
        }
        arrival.await;
    }
}

/// Creates workflows of one job until one is in a partition that a server is the home of, or is not. The others are paused.
async fn create_at(
    engine: &Engine,
    wanted: impl Fn(Partition) -> bool,
    priority: u8,
    retry: Retry,
) -> WorkflowId {
    for key in 0.. {
        let mut one = definition("a");
        one.idempotency_key = Some(format!("{priority} {key}"));
        one.jobs[0].priority = priority;
        one.jobs[0].retry = retry;
        let id = create_of(engine, one, StartMode::Later).await;
        if wanted(id.partition()) {
            engine
                .act(id, tidegate_workflow::Action::Start, at(0))
                .await
                .unwrap();
            return id;
        }
    }
    unreachable!()
}

async fn partitions_are_shared_out_and_workflows_are_made_at_home(store: Store) {
    let servers = servers(&store, 2).await;
    let homes: Vec<_> = servers.iter().map(Server::homes).collect();
    assert_eq!((homes[0].len(), homes[1].len()), (2, 2));
    assert!(homes[0].is_disjoint(&homes[1]));
    for (server, homes) in servers.iter().zip(&homes) {
        for _ in 0..10 {
            assert!(
                homes.contains(
                    &create(&server.engine, "a", StartMode::Later)
                        .await
                        .partition()
                )
            );
        }
    }
}

/// Whichever server makes it, and wherever the worker waits: without a look.
async fn a_worker_hears_of_a_job_that_another_server_made_ready(store: Store) {
    let servers = servers(&store, 4).await;
    for maker in &servers {
        for waits in &servers {
            let engine = waits.engine.clone();
            let worker = tokio::spawn(async move { work(&engine).await });
            until(|| waits.engine.receives_notifications()).await;
            let id = create(&maker.engine, "a", StartMode::Now).await;
            let claimed = timeout(SOON, worker)
                .await
                .expect("it hears of the job")
                .unwrap();
            assert_eq!(claimed[0].lease.workflow, id);
            succeed(&waits.engine, claimed[0].lease, 1).await.unwrap();
        }
    }
}

/// A home tried all jobs in vain that others had taken there.
async fn what_another_server_took_is_tried_once(store: Store) {
    let servers = servers(&store, 2).await;
    let [home, other] = &servers[..] else {
        unreachable!()
    };
    until(|| home.engine.receives_notifications()).await;
    create(&home.engine, "a b c d e f g h", StartMode::Now).await;
    assert_eq!(other.engine.claim(&claim(8), at(0)).await.unwrap().len(), 8);
    for _ in 0..8 {
        let claimed = home.engine.claim(&claim(1), at(0)).await.unwrap();
        assert!(claimed.is_empty());
    }
    assert_eq!(home.engine.conflicts(), 1);
}

/// Each lane of jobs that are gone costs a refused write, and a claim ends after some of them.
async fn what_another_server_took_hides_no_other_job(store: Store) {
    let servers = servers(&store, 2).await;
    let [home, other] = &servers[..] else {
        unreachable!()
    };
    let with_handler = |number: usize| {
        let mut one = definition("a");
        one.jobs[0].handler = format!("handler-{number}");
        one
    };
    let none = home.engine.claim(&claim(1), at(0)).await.unwrap();
    assert!(none.is_empty(), "from here on it knows all jobs");
    for number in 0..50 {
        create_of(&home.engine, with_handler(number), StartMode::Now).await;
    }
    let taken = other.engine.claim(&claim(50), at(0)).await.unwrap();
    assert_eq!(taken.len(), 50);
    let last = create_of(&home.engine, with_handler(50), StartMode::Now).await;
    let claimed = home.engine.claim(&claim(1), at(0)).await.unwrap();
    assert_eq!(claimed[0].lease.workflow, last);
    // Fewer where it happened to read the partition in between.
    assert!(home.engine.conflicts() <= 2);
}

/// The notice of a job that another server had answered for was on its way, and a claim said that there was none.
#[tokio::test]
async fn a_claim_that_does_not_wait_needs_no_notice() {
    let simulated = SimulatedStore::new(4);
    let store = Store::Simulated(simulated.clone());
    let servers = servers(&store, 2).await;
    let [makes, claims] = &servers[..] else {
        unreachable!()
    };
    until(|| claims.engine.receives_notifications()).await;
    let none = claims.engine.claim(&claim(1), at(0)).await.unwrap();
    assert!(none.is_empty(), "from here on it could trust in notices");
    simulated.lose_messages(u64::MAX);
    for _ in 0..10 {
        let id = create(&makes.engine, "a", StartMode::Now).await;
        let claimed = claims.engine.claim(&claim(1), at(0)).await.unwrap();
        assert_eq!(claimed[0].lease.workflow, id);
    }
}

/// The one job of a store may be in any partition of any server.
#[tokio::test]
async fn the_last_job_is_found_wherever_it_is() {
    let store = Store::Simulated(SimulatedStore::new(64));
    let servers = servers(&store, 2).await;
    for _ in 0..10 {
        let id = create(&servers[0].engine, "a", StartMode::Now).await;
        let claimed = servers[1].engine.claim(&claim(1), at(0)).await.unwrap();
        assert_eq!(claimed[0].lease.workflow, id);
    }
}

async fn what_was_lost_is_found_by_a_look(store: Store) {
    let servers = servers(&store, 2).await;
    let engine = servers[1].engine.clone();
    let worker = tokio::spawn(async move { work(&engine).await });
    until(|| servers[1].engine.receives_notifications()).await;
    // Nobody is told of what it does.
    let silent = server(&store).await;
    silent
        .heartbeat(
            &ServerDescription::default(),
            at(10_000),
            HeartbeatQuery::MembersOnly,
        )
        .await
        .unwrap();
    create(&silent, "a", StartMode::Now).await;
    until(|| !worker.is_finished()).await;
    servers[1].engine.poll_store().await.unwrap();
    assert_eq!(timeout(SOON, worker).await.unwrap().unwrap().len(), 1);
}

/// A worker that always found jobs at its own server never saw it.
async fn an_urgent_job_elsewhere_goes_before_all_that_is_here(store: Store) {
    let servers = servers(&store, 2).await;
    let here = &servers[0];
    let there = &servers[1];
    for _ in 0..20 {
        create(&here.engine, "usual", StartMode::Now).await;
    }
    assert_eq!(here.engine.claim(&claim(1), at(1)).await.unwrap().len(), 1);
    let homes = there.homes();
    let urgent = create_at(&there.engine, |at| homes.contains(&at), 9, Retry::default()).await;
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < SOON, "it waits behind all others");
        tokio::time::sleep(Duration::from_millis(5)).await;
        let claimed = here.engine.claim(&claim(1), at(1)).await.unwrap().remove(0);
        if claimed.lease.workflow == urgent {
            return;
        }
        let (_, _) = here
            .engine
            .report(vec![give_back(&claimed)], None, at(1))
            .await;
    }
}

fn give_back(claimed: &Claimed) -> tidegate_workflow::Report {
    let outcome = tidegate_workflow::Outcome::Returned {
        pause: Duration::ZERO,
    };
    tidegate_workflow::Report {
        lease: claimed.lease,
        outcome,
    }
}

/// What is at home at a server without workers would wait for ever behind what comes again and again elsewhere.
async fn an_old_job_elsewhere_goes_before_what_is_here(store: Store) {
    let servers = servers(&store, 2).await;
    let here = &servers[0].engine;
    let there = &servers[1].engine;
    let old = create(there, "old", StartMode::Now).await;
    for _ in 0..5 {
        let new = crate::support::new(definition("new"), StartMode::Now);
        here.create(vec![new], at(3)).await.remove(0).unwrap();
    }
    assert_eq!(
        here.claim(&claim(1), at(3)).await.unwrap().len(),
        1,
        "this one asks for jobs"
    );
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < SOON, "it waits behind all others");
        tokio::time::sleep(Duration::from_millis(5)).await;
        let claimed = here.claim(&claim(1), at(4)).await.unwrap().remove(0);
        if claimed.lease.workflow == old {
            return;
        }
        let (_, _) = here.report(vec![give_back(&claimed)], None, at(4)).await;
    }
}

async fn a_timer_is_told_to_the_home_of_its_partition(store: Store) {
    let servers = servers(&store, 2).await;
    let here = &servers[0];
    let there = &servers[1];
    while there.engine.sweep_working(at(0)).await.unwrap() {}
    let homes = there.homes();
    let retry = Retry {
        limit: 1,
        backoff: Duration::from_secs(5),
        ..Retry::default()
    };
    let id = create_at(&here.engine, |at| homes.contains(&at), 0, retry).await;
    let claimed = here.engine.claim(&claim(1), at(1)).await.unwrap().remove(0);
    assert_eq!(claimed.lease.workflow, id);
    let reported = report(&here.engine, claimed.lease, failure(), 1)
        .await
        .unwrap();
    let JobState::Scheduled { due } = reported.job else {
        panic!("{reported:?}")
    };
    until(|| there.engine.next_due().is_some_and(|next| next <= due)).await;
    here.engine.sweep_working(due).await.unwrap();
    let is_ready = async || here.engine.show(id).await.unwrap().jobs()[0].state == JobState::Ready;
    assert!(!is_ready().await, "its home does that");
    there.engine.sweep_working(due).await.unwrap();
    assert!(is_ready().await);
}

async fn a_server_that_is_silent_loses_its_homes_and_harms_nothing(store: Store) {
    let servers = servers(&store, 2).await;
    let lives = &servers[0];
    let frozen = &servers[1];
    let id = create(&frozen.engine, "a", StartMode::Now).await;
    let lease = frozen
        .engine
        .claim(&claim(1), at(1))
        .await
        .unwrap()
        .remove(0)
        .lease;
    lives.beat(at(5)).await;
    assert_eq!(lives.homes().len(), 2, "it may have missed a beat or two");
    lives.beat(at(8)).await;
    assert_eq!(lives.homes().len(), 4);
    // The lease is over, and the job runs again elsewhere.
    while lives.engine.sweep_working(at(40)).await.unwrap() {}
    let again = lives.engine.claim(&claim(1), at(60)).await.unwrap();
    assert_eq!((again[0].lease.workflow, names(&again)), (id, vec!["a"]));
    // It wakes up, and does what it would have done.
    frozen.engine.sweep(at(60)).await.unwrap();
    succeed(&frozen.engine, lease, 61)
        .await
        .expect_err("that lease is lost");
    for server in [frozen, lives, frozen, lives] {
        server.beat(at(61)).await;
    }
    assert_eq!((lives.homes().len(), frozen.homes().len()), (2, 2));
    assert_eq!(
        succeed(&lives.engine, again[0].lease, 61).await,
        Ok(JobState::Succeeded)
    );
}

async fn a_pause_is_heard_of(store: Store) {
    let servers = servers(&store, 2).await;
    create(&servers[0].engine, "a", StartMode::Now).await;
    servers[0]
        .engine
        .set_queue_paused("default", tidegate_workflow::Paused::Yes)
        .await
        .unwrap();
    let begin = Instant::now();
    while !servers[1]
        .engine
        .claim(&claim(1), at(1))
        .await
        .unwrap()
        .is_empty()
    {
        assert!(begin.elapsed() < SOON);
    }
}

/// Redis lets its user do all but talk to others.
#[tokio::test]
async fn servers_that_may_not_talk_find_out_by_looking() {
    let redis = RedisServer::start().await;
    assert_eq!(redis.raw("ACL SETUSER default resetchannels"), "+OK\r\n");
    let config = redis.config();
    let options = RedisOptions::new("test:", 4, SOON).unwrap();
    let mut stores = Vec::new();
    for _ in 0..2 {
        let client = Client::new(config.clone()).unwrap();
        stores.push(Store::Redis(
            RedisStore::open(client, options.clone()).await.unwrap(),
        ));
    }
    let one = Server::start(&stores[0]).await;
    let other = Server::start(&stores[1]).await;
    one.beat(at(0)).await;
    assert!(
        !one.engine.receives_notifications() && !other.engine.receives_notifications(),
        "so the server looks more often"
    );
    create(&one.engine, "a", StartMode::Now).await;
    assert_eq!(other.engine.claim(&claim(1), at(1)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn who_leaves_gives_its_homes_away_at_once() {
    let store = Store::Simulated(SimulatedStore::new(4));
    let servers = servers(&store, 2).await;
    let changed = servers[0].engine.members_changed();
    servers[1].engine.leave().await;
    timeout(SOON, changed).await.unwrap();
    servers[0].beat(at(0)).await;
    assert_eq!(servers[0].homes().len(), 4);
    assert_eq!(
        servers[0].engine.read_members(at(0)).await.unwrap().len(),
        1
    );
}

/// Leases end in time when one of several servers begins, and one lease later when the only one does.
async fn what_another_server_served_is_no_gap(store: Store) {
    let first = Server::start(&store).await;
    let second = Server::start(&store).await;
    first.engine.begin_serving(at(0));
    first.beat(at(0)).await;
    let id = create(&first.engine, "a", StartMode::Now).await;
    assert_eq!(take(&first.engine, 1).await.len(), 1);
    second.engine.begin_serving(at(20));
    second.beat(at(20)).await;
    first.beat(at(22)).await;
    second.beat(at(23)).await;
    // The first one is not heard of any more.
    second.beat(at(31)).await;
    let is_state = async |server: &Server, expected: &str| {
        assert_eq!(state(&server.engine.show(id).await.unwrap(), "a"), expected);
    };
    second.engine.sweep(at(31)).await.unwrap();
    is_state(&second, "ready").await;
    assert_eq!(take(&second.engine, 32).await.len(), 1);
    let third = Server::start(&store).await;
    third.engine.begin_serving(at(60));
    third.beat(at(60)).await;
    for (now, expected) in [(62, "running"), (89, "running"), (90, "ready")] {
        third.engine.sweep(at(now)).await.unwrap();
        is_state(&third, expected).await;
    }
}
