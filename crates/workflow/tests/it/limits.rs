//! Limits of jobs: what is taken for them, who waits, and who does not.

mod closed;
mod given_back;
mod model;
pub(crate) mod windows;

use std::time::Duration;

use tidegate_workflow::{
    Action, Claim, ClaimMode, Claimed, ConcurrencyScope, Definition, Engine, JobDefinition, Json,
    LimitDefinition, Outcome, PolicyTarget, Report, StartMode, Store, WorkflowId,
};

use crate::support::{LEASE, at, claim, create_of, names, report, succeed, take};
use windows::{Windows, clock};

/// Jobs of a tenant under a limit of a vendor.
fn units(tenant: &str, jobs: usize) -> Definition {
    let limit = LimitDefinition::Units {
        domain: "vendor".to_owned(),
        entries: vec![("tenant".to_owned(), "$.tenant".to_owned())],
        hits: 1,
    };
    of_tenant(tenant, jobs, vec![limit])
}

fn units_each(tenant: &str, jobs: usize, hits: u32) -> Definition {
    let entries = vec![("tenant".to_owned(), "$.tenant".to_owned())];
    of_tenant(
        tenant,
        jobs,
        vec![LimitDefinition::Units {
            domain: "vendor".to_owned(),
            entries,
            hits,
        }],
    )
}

fn running(tenant: &str, jobs: usize, most: u32) -> Definition {
    let entries = vec![("tenant".to_owned(), "$.tenant".to_owned())];
    of_tenant(
        tenant,
        jobs,
        vec![LimitDefinition::Concurrency {
            most,
            of: ConcurrencyScope::All,
            entries,
        }],
    )
}

fn of_tenant(tenant: &str, jobs: usize, limits: Vec<LimitDefinition>) -> Definition {
    let job = |at| JobDefinition {
        limits: limits.clone(),
        ..JobDefinition::new(format!("{tenant}{at}"), "handler")
    };
    Definition {
        name: "test".to_owned(),
        jobs: (0..jobs).map(job).collect(),
        globals: Some(Json::parse(format!("{{\"tenant\":\"{tenant}\"}}")).unwrap()),
        ..Definition::default()
    }
}

async fn put(engine: &Engine, definition: Definition) -> WorkflowId {
    create_of(engine, definition, StartMode::Now).await
}

async fn claimed(engine: &Engine, limit: usize, seconds: u64) -> Vec<Claimed> {
    engine.claim(&claim(limit), at(seconds)).await.unwrap()
}

/// How many of each tenant.
fn of(claimed: &[Claimed], tenant: &str) -> usize {
    names(claimed)
        .iter()
        .filter(|name| name.starts_with(tenant))
        .count()
}

async fn a_window_has_room_for_so_many_jobs_and_others_do_not_wait(store: Store) {
    let windows = Windows::new(&[("vendor", 3)]);
    let engine = windows.server(&store).await;
    put(&engine, units("a", 100)).await;
    put(&engine, units("b", 2)).await;
    let first = claimed(&engine, 50, 1).await;
    assert_eq!((of(&first, "a"), of(&first, "b")), (3, 2));
    let asked = windows.calls();
    for _ in 0..20 {
        assert_eq!(claimed(&engine, 50, 1).await.len(), 0);
    }
    assert_eq!(
        windows.calls(),
        asked,
        "nobody asks for units of a key that is closed"
    );
    windows.turn();
    assert_eq!(claimed(&engine, 2, 3).await.len(), 2);
    assert_eq!(claimed(&engine, 50, 3).await.len(), 1);
    assert_eq!(windows.taken("vendor/tenant=a"), 3);
}

async fn the_places_of_a_limit_are_never_more_than_it_has(store: Store) {
    let windows = Windows::new(&[]);
    let engine = windows.server(&store).await;
    let other = windows.server(&store).await;
    put(&engine, running("a", 20, 3)).await;
    put(&engine, running("b", 1, 3)).await;
    let mine = claimed(&engine, 2, 1).await;
    assert_eq!(mine.len(), 2);
    other.poll_store().await.unwrap();
    let others = claimed(&other, 50, 1).await;
    assert_eq!(
        (
            of(&others, "a") + of(&mine, "a"),
            of(&others, "b") + of(&mine, "b")
        ),
        (3, 1)
    );
    assert_eq!(
        claimed(&engine, 50, 1).await.len() + claimed(&other, 50, 1).await.len(),
        0
    );
    // A place is free as soon as a job has ended, and with the end of a lease.
    let one = mine
        .iter()
        .find(|job| job.job().name.starts_with('a'))
        .unwrap();
    succeed(&engine, one.lease, 2).await.unwrap();
    eventually_one(&engine, 2).await;
    assert_eq!(claimed(&engine, 50, 2).await.len(), 0);
    other
        .extend(
            others
                .iter()
                .map(|job| (job.lease, at(2) + LEASE))
                .collect(),
            at(2),
        )
        .await;
    engine.sweep(at(40)).await.unwrap();
    take(&engine, 40).await;
    let running = engine.running_jobs(Default::default()).await.unwrap();
    assert!(running.next.is_none());
}

/// A worker that waits is woken when a place is free, and claims one job.
async fn eventually_one(engine: &Engine, seconds: u64) {
    let queues = ["default".to_owned()];
    let begin = std::time::Instant::now();
    loop {
        let arrival = engine.arrival(&queues);
        match claimed(engine, 50, seconds).await.len() {
            0 => tokio::time::timeout(Duration::from_secs(10), arrival)
                .await
                .expect("a place is free"),
            number => return assert_eq!(number, 1),
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}

async fn a_key_with_many_jobs_and_one_with_few_get_their_shares(store: Store) {
    let windows = Windows::new(&[]);
    let engine = windows.server(&store).await;
    put(&engine, units("a", 1_000)).await;
    for tenant in ["b", "c", "d"] {
        put(&engine, units(tenant, 10)).await;
    }
    let mut few = 0;
    for _ in 0..40 {
        few += claimed(&engine, 1, 1)
            .await
            .iter()
            .filter(|job| !job.job().name.starts_with('a'))
            .count();
    }
    assert_eq!(few, 30, "each key has its turn");
    assert_eq!(of(&claimed(&engine, 100, 1).await, "a"), 100);
}

async fn a_worker_gets_what_it_can_run(store: Store) {
    let windows = Windows::new(&[]);
    let engine = windows.server(&store).await;
    let many = (0..2_000)
        .map(|at| JobDefinition::new(format!("x{at}"), "other"))
        .collect();
    put(
        &engine,
        Definition {
            name: "test".to_owned(),
            jobs: many,
            ..Definition::default()
        },
    )
    .await;
    let mine = vec![JobDefinition::new("mine", "handler")];
    put(
        &engine,
        Definition {
            name: "test".to_owned(),
            jobs: mine,
            ..Definition::default()
        },
    )
    .await;
    let wants = Claim {
        handlers: Some(vec!["handler".to_owned()]),
        ..claim(10)
    };
    // Also at a server that has to read them.
    let other = windows.server(&store).await;
    let found = other.claim(&wants, at(1)).await.unwrap();
    assert_eq!(names(&found), ["mine"]);
    assert_eq!(engine.claim(&wants, at(1)).await.unwrap().len(), 0);
    assert_eq!(claimed(&engine, 3_000, 1).await.len(), 2_000);
    report(
        &other,
        found[0].lease,
        Outcome::Returned {
            pause: Duration::ZERO,
        },
        1,
    )
    .await
    .unwrap();
    assert_eq!(other.claim(&wants, at(1)).await.unwrap().len(), 1);
}

async fn workers_are_woken_when_a_window_turns(store: Store) {
    let windows = Windows::new(&[("vendor", 2)]);
    windows.set_left(Duration::from_millis(300));
    let engine = windows.server(&store).await;
    let now = clock(at(1));
    let opening = tokio::spawn({
        let engine = engine.clone();
        let now = now.clone();
        async move { engine.unblock_loop(now, || false).await }
    });
    put(&engine, units("a", 6)).await;
    assert_eq!(engine.claim(&claim(10), now()).await.unwrap().len(), 2);
    let queues = ["default".to_owned()];
    let arrival = engine.arrival(&queues);
    assert_eq!(engine.claim(&claim(10), now()).await.unwrap().len(), 0);
    windows.turn();
    tokio::time::timeout(Duration::from_secs(10), arrival)
        .await
        .expect("the window has turned");
    assert_eq!(engine.claim(&claim(10), now()).await.unwrap().len(), 2);
    opening.abort();
}

async fn many_keys_are_found_and_closed_ones_are_passed_over(store: Store) {
    let windows = Windows::new(&[("vendor", 1)]);
    let engine = windows.server(&store).await;
    for tenant in 0..300 {
        put(&engine, units(&format!("t{tenant:03}."), 2)).await;
    }
    let other = windows.server(&store).await;
    let mut found = 0;
    for _ in 0..50 {
        found += claimed(&other, 10, 1).await.len();
    }
    assert_eq!(
        (found, windows.most_taken("vendor")),
        (300, 1),
        "one of each"
    );
    windows.turn();
    put(&other, units("u", 1)).await;
    let urgent = claimed(&other, 1_000, 9).await;
    assert_eq!(urgent.len(), 301);
}

/// A worker that wanted one job got none when more keys had no room than it tried, although another key had some.
async fn a_job_with_room_is_found_behind_many_keys_without(store: Store) {
    const KEYS: usize = 300;
    let windows = Windows::new(&[("vendor", 0), ("zoo", 1)]);
    let engine = windows.server(&store).await;
    for key in 0..KEYS {
        put(&engine, units(&format!("t{key}-"), 1)).await;
    }
    let limit = LimitDefinition::Units {
        domain: "zoo".to_owned(),
        entries: vec![("tenant".to_owned(), "$.tenant".to_owned())],
        hits: 1,
    };
    put(&engine, of_tenant("free", 1, vec![limit])).await;
    assert_eq!(of(&claimed(&engine, 1, 1).await, "free"), 1);
    assert!(
        windows.calls() < KEYS as u64 / 10,
        "units were asked for {} times",
        windows.calls()
    );
}

async fn until(done: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "it does not come about"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Claims of a hundred small jobs used up each window before the large one was asked for.
async fn a_job_that_needs_many_units_is_not_starved_by_small_ones(store: Store) {
    let windows = Windows::new(&[("vendor", 100)]);
    let engine = windows.server(&store).await;
    put(&engine, units("a", 400)).await;
    let large = put(&engine, units_each("a", 1, 60)).await;
    let first = claimed(&engine, 100, 1).await;
    assert!(first.len() > 90 && first.iter().all(|job| job.lease.workflow != large));
    windows.turn();
    let second = claimed(&engine, 100, 3).await;
    assert!(
        second.iter().any(|job| job.lease.workflow == large),
        "{} small ones",
        second.len()
    );
    assert_eq!(
        windows.taken("vendor/tenant=a"),
        60 + second.len() as u64 - 1
    );
    // After its turn the small ones have theirs.
    windows.turn();
    assert_eq!(claimed(&engine, 100, 5).await.len(), 100);
}

async fn the_concurrency_of_jobs_that_wait_is_lowered_and_raised_again(store: Store) {
    let engine = Windows::new(&[]).server(&store).await;
    put(&engine, running("a", 20, 5)).await;
    let subject = PolicyTarget::Handler("handler".to_owned());
    let entries = vec![("tenant".to_owned(), "$.tenant".to_owned())];
    let limit = |most| LimitDefinition::Concurrency {
        most,
        of: ConcurrencyScope::All,
        entries: entries.clone(),
    };
    engine.set_limits(&subject, &[limit(2)]).await.unwrap();
    let mut running = claimed(&engine, 50, 1).await;
    assert_eq!(running.len(), 2);
    assert_eq!(claimed(&engine, 50, 1).await.len(), 0);
    engine.set_limits(&subject, &[limit(4)]).await.unwrap();
    running.extend(claimed(&engine, 50, 1).await);
    assert_eq!(running.len(), 4);
    engine.set_limits(&subject, &[]).await.unwrap();
    running.extend(claimed(&engine, 50, 1).await);
    assert_eq!(running.len(), 5, "as they were created");
    // Limits of another handler, of another tenant, and of jobs that are counted in another way, are not meant.
    put(&engine, crate::limits::running("b", 20, 3)).await;
    let of_tenant = LimitDefinition::Concurrency {
        most: 1,
        of: ConcurrencyScope::All,
        entries: vec![("tenant".to_owned(), "a".to_owned())],
    };
    let of_queue = LimitDefinition::Concurrency {
        most: 1,
        of: ConcurrencyScope::Queue,
        entries: entries.clone(),
    };
    engine
        .set_limits(&PolicyTarget::Handler("other".to_owned()), &[limit(1)])
        .await
        .unwrap();
    engine
        .set_limits(&subject, &[of_tenant, of_queue])
        .await
        .unwrap();
    assert_eq!(claimed(&engine, 50, 1).await.len(), 3);
}

on_every_store! {
    a_window_has_room_for_so_many_jobs_and_others_do_not_wait
    a_key_with_many_jobs_and_one_with_few_get_their_shares
    a_worker_gets_what_it_can_run
    workers_are_woken_when_a_window_turns
    many_keys_are_found_and_closed_ones_are_passed_over
    a_job_with_room_is_found_behind_many_keys_without
    a_job_that_needs_many_units_is_not_starved_by_small_ones
    the_concurrency_of_jobs_that_wait_is_lowered_and_raised_again
}

mod shared {
    use super::*;

    on_every_shared_store! {
        the_places_of_a_limit_are_never_more_than_it_has
    }
}

/// Random runs: what was taken, given back and spent agrees.
#[tokio::test]
async fn what_is_taken_agrees_with_what_runs_in_a_simulated_store() {
    model::live(async || crate::support::simulated().await.0, 25).await;
}

#[tokio::test]
async fn what_is_taken_agrees_with_what_runs_in_redis() {
    let redis = tidegate_pipeline::test_util::RedisServer::start().await;
    let number = std::cell::Cell::new(0);
    let open = async || {
        number.set(number.get() + 1);
        let options = tidegate_workflow::RedisOptions::new(
            format!("t{}:", number.get()),
            4,
            Duration::from_secs(5),
        );
        let client = tidegate_pipeline::Client::new(redis.config()).unwrap();
        Store::Redis(
            tidegate_workflow::RedisStore::open(client, options.unwrap())
                .await
                .unwrap(),
        )
    };
    model::live(open, 3).await;
}
