//! Registers of names: pages of them, and names that nobody uses any more.

use std::time::Duration;

use tidegate_workflow::{
    CallKind, Definition, Engine, Fault, Filter, InjectedFault, JobDefinition, NewWorkflow, Paused,
    Register, Retention, SimulatedStore, StartMode, Store,
};

use crate::support::{at, claim, new, server, succeed};

on_every_store! {
    queues_are_read_in_pages
    names_that_nobody_uses_disappear
    a_queue_stays_as_long_as_a_workflow_may_name_it
    many_names_disappear_soon
    rows_lead_to_names_that_are_missing
    a_name_that_is_used_again_is_entered_again
}

const HOUR: u64 = 3_600;
/// A moment at which names are removed that were entered at the beginning.
const LATER: u64 = 4 * HOUR;

/// A workflow of one job.
fn named(name: &str, queue: &str, retention: Retention) -> NewWorkflow {
    let job = JobDefinition {
        queue: queue.to_owned(),
        ..JobDefinition::new("a", "handler")
    };
    let mut wanted = Definition {
        name: name.to_owned(),
        jobs: vec![job],
        ..Definition::default()
    };
    wanted.retention = Some(retention);
    new(wanted, StartMode::Now)
}

async fn create_at(engine: &Engine, new: NewWorkflow, seconds: u64) {
    engine
        .create(vec![new], at(seconds))
        .await
        .remove(0)
        .unwrap();
}

/// Runs all jobs of a queue to their end.
async fn finish(engine: &Engine, queue: &str, seconds: u64) {
    let mut wanted = claim(1_000);
    wanted.queues = vec![queue.to_owned()];
    for claimed in engine.claim(&wanted, at(seconds)).await.unwrap() {
        succeed(engine, claimed.lease, seconds).await.unwrap();
    }
}

/// What was due up to a moment is done, and all names have been looked at since.
async fn sweep_until(engine: &Engine, seconds: u64) {
    while engine.sweep(at(seconds)).await.unwrap() {}
    for _ in 0..3 {
        engine.sweep(at(seconds)).await.unwrap();
    }
}

/// Sweeps on until no more names are removed.
async fn look_after_names(engine: &Engine, from: u64) {
    for turn in 0..4 {
        sweep_until(engine, from + turn * 301).await;
    }
}

async fn queues(store: &Store) -> Vec<String> {
    store
        .register(Register::Queues)
        .await
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

async fn workflows(store: &Store) -> Vec<String> {
    store
        .register(Register::Names)
        .await
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

async fn queues_are_read_in_pages(store: Store) {
    let engine = server(&store).await;
    let job = |at: usize| JobDefinition {
        queue: format!("q{at:04}"),
        ..JobDefinition::new(format!("j{at}"), "handler")
    };
    let wanted = Definition {
        name: "wide".to_owned(),
        jobs: (0..250).map(job).collect(),
        ..Definition::default()
    };
    engine
        .create(vec![new(wanted, StartMode::Now)], at(0))
        .await
        .remove(0)
        .unwrap();
    engine.set_queue_paused("q0101", Paused::Yes).await.unwrap();
    let mut all = Vec::new();
    let mut after = None::<String>;
    loop {
        let page = engine
            .queue_page(after.as_deref(), 100)
            .await
            .unwrap()
            .found;
        assert_eq!(page.queues.len(), if page.more { 100 } else { 50 });
        assert!(
            page.queues
                .iter()
                .all(|queue| queue.ready == 1 && queue.oldest == Some(at(0))),
            "{:?}",
            page.queues
        );
        all.extend(page.queues);
        after = all.last().map(|queue| queue.name.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(all.len(), 250);
    assert!(all.is_sorted_by(|left, right| left.name < right.name));
    let paused: Vec<_> = all
        .iter()
        .filter(|queue| queue.paused == Paused::Yes)
        .map(|queue| &queue.name)
        .collect();
    assert_eq!(paused, ["q0101"]);
    // A page may begin after a name that is not there, and at the end there is nothing.
    let page = engine.queue_page(Some("q00"), 1).await.unwrap().found;
    assert_eq!((page.queues[0].name.as_str(), page.more), ("q0000", true));
    let page = engine.queue_page(Some("q0249"), 1).await.unwrap().found;
    assert_eq!((page.queues.len(), page.more), (0, false));
}

async fn names_that_nobody_uses_disappear(store: Store) {
    let engine = server(&store).await;
    sweep_until(&engine, 0).await;
    let minute = Retention::For(Duration::from_secs(60));
    for queue in ["once", "paused"] {
        create_at(&engine, named("short", queue, minute), 0).await;
    }
    for queue in ["once", "paused"] {
        finish(&engine, queue, 1).await;
    }
    engine
        .set_queue_paused("paused", Paused::Yes)
        .await
        .unwrap();
    // Both are removed. Until its time has come, a name stays.
    look_after_names(&engine, HOUR).await;
    assert_eq!(
        engine
            .count(&Filter::default())
            .await
            .unwrap()
            .found
            .iter()
            .map(|(_, number)| number)
            .sum::<u64>(),
        0
    );
    assert_eq!(
        (queues(&store).await.len(), workflows(&store).await.len()),
        (2, 1)
    );
    look_after_names(&engine, LATER).await;
    assert_eq!(queues(&store).await, ["paused"]);
    assert!(workflows(&store).await.is_empty());
    assert_eq!(engine.has_queue("once").await, Ok(false));
    // What is used anew is there again.
    create_at(
        &engine,
        named("short", "once", Retention::Forever),
        LATER + HOUR,
    )
    .await;
    assert_eq!(
        (queues(&store).await, workflows(&store).await),
        (
            vec!["once".to_owned(), "paused".to_owned()],
            vec!["short".to_owned()]
        )
    );
    look_after_names(&engine, LATER + 9 * HOUR).await;
    assert_eq!(
        (queues(&store).await.len(), workflows(&store).await.len()),
        (2, 1),
        "a workflow has the name, and a job is ready"
    );
}

async fn a_queue_stays_as_long_as_a_workflow_may_name_it(store: Store) {
    let engine = server(&store).await;
    sweep_until(&engine, 0).await;
    let mut wanted = Definition {
        name: "late".to_owned(),
        ..Definition::default()
    };
    let first = JobDefinition::new("first", "handler");
    wanted.jobs = vec![
        first,
        JobDefinition {
            queue: "night".to_owned(),
            after: vec!["first".to_owned()],
            ..JobDefinition::new("second", "handler")
        },
    ];
    create_at(&engine, new(wanted, StartMode::Now), 0).await;
    look_after_names(&engine, LATER).await;
    assert_eq!(
        queues(&store).await,
        ["default", "night"],
        "a job waits for the first one, and will be ready in this queue"
    );
    // After very long the name is not kept for that. When the job becomes ready, it is there again.
    look_after_names(&engine, 40 * 24 * HOUR).await;
    assert_eq!(queues(&store).await, ["default"]);
    finish(&engine, "default", 40 * 24 * HOUR + 2_000).await;
    look_after_names(&engine, 40 * 24 * HOUR + 2_001).await;
    assert_eq!(queues(&store).await, ["night"]);
}

async fn many_names_disappear_soon(store: Store) {
    let engine = server(&store).await;
    sweep_until(&engine, 0).await;
    let entries: Vec<(String, String)> = (0..1_000)
        .map(|at| (format!("n{at:04}"), String::new()))
        .collect();
    for register in [Register::Queues, Register::Names] {
        store.add_entries(register, &entries, at(0)).await.unwrap();
    }
    create_at(&engine, named("n0500", "n0700", Retention::Forever), LATER).await;
    // A page is looked at every second as long as there is something to remove.
    for seconds in 0..20 {
        engine.sweep(at(LATER + 301 + seconds)).await.unwrap();
    }
    assert_eq!(
        (queues(&store).await, workflows(&store).await),
        (vec!["n0700".to_owned()], vec!["n0500".to_owned()])
    );
}

async fn rows_lead_to_names_that_are_missing(store: Store) {
    let engine = server(&store).await;
    sweep_until(&engine, 0).await;
    for name in ["a", "b"] {
        create_at(&engine, named(name, name, Retention::Forever), 0).await;
        store.set_entry(Register::Queues, name, None).await.unwrap();
        store.set_entry(Register::Names, name, None).await.unwrap();
    }
    look_after_names(&engine, HOUR).await;
    assert_eq!(
        (queues(&store).await.len(), workflows(&store).await.len()),
        (2, 2)
    );
}

async fn a_name_that_is_used_again_is_entered_again(store: Store) {
    let home = server(&store).await;
    let other = server(&store).await;
    sweep_until(&home, 0).await;
    create_at(
        &other,
        named("short", "once", Retention::For(Duration::from_secs(60))),
        0,
    )
    .await;
    finish(&other, "once", 1).await;
    look_after_names(&home, LATER).await;
    assert!(queues(&store).await.is_empty() && workflows(&store).await.is_empty());
    // The other server remembers that it entered them, which is too long ago.
    create_at(
        &other,
        named("short", "once", Retention::Forever),
        LATER + 2_000,
    )
    .await;
    assert_eq!(
        (queues(&store).await, workflows(&store).await),
        (vec!["once".to_owned()], vec!["short".to_owned()])
    );
}

/// Servers that remove a name and use it again at the same moment, with calls of the store in every order.
#[tokio::test]
async fn a_name_that_is_used_while_it_is_removed_stays() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let simulated = SimulatedStore::new(1);
        let store = Store::Simulated(simulated.clone());
        let home = server(&store).await;
        let other = server(&store).await;
        sweep_until(&home, 0).await;
        create_at(
            &other,
            named("short", "once", Retention::For(Duration::from_secs(60))),
            0,
        )
        .await;
        finish(&other, "once", 1).await;
        sweep_until(&home, 100).await;
        simulated.inject(move |_: CallKind| InjectedFault {
            fault: Fault::None,
            before: random.u8(..6),
            after: random.u8(..6),
        });
        let use_it = async {
            for _ in 0..seed % 40 {
                tokio::task::yield_now().await;
            }
            create_at(
                &other,
                named("short", "once", Retention::Forever),
                LATER + 2_000,
            )
            .await;
        };
        let sweep = async { home.sweep(at(LATER + 2_000)).await.unwrap() };
        tokio::join!(sweep, use_it);
        simulated.inject(|_: CallKind| Fault::None);
        assert_eq!(
            (queues(&store).await, workflows(&store).await),
            (vec!["once".to_owned()], vec!["short".to_owned()]),
            "seed {seed}"
        );
    }
}

/// A register that a version before wrote, which knows nothing of an order of names, and one whose order was lost.
#[tokio::test]
async fn names_of_earlier_versions_are_put_in_order() {
    let (store, redis) = crate::support::redis().await;
    for at in 0..150 {
        let _ = redis.raw(&format!("HSET test:queues q{at:03} \"\""));
    }
    let _ = redis.raw("HSET test:queues q100 paused");
    let engine = server(&store).await;
    let check = async |before: &str| {
        let page = engine.queue_page(Some("q098"), 3).await.unwrap().found;
        let found: Vec<_> = page
            .queues
            .iter()
            .map(|queue| (queue.name.as_str(), queue.paused))
            .collect();
        assert_eq!(
            found,
            [
                ("q099", Paused::No),
                ("q100", Paused::Yes),
                ("q101", Paused::No)
            ],
            "{before}"
        );
        let scored = redis.raw("ZLEXCOUNT test:{test:queues}:order - +");
        assert_eq!(scored.trim(), ":152", "{before}");
    };
    check("start").await;
    for lost in [
        "DEL test:{test:queues}:order",
        "DEL test:queues",
        "HDEL test:queues q099 q100",
        "ZREM test:{test:queues}:order nq100 pq100",
    ] {
        let _ = redis.raw(lost);
        engine.poll_store().await.unwrap();
        check(lost).await;
    }
}

/// A server read all names every ten seconds, which took 30 ms of Redis at 100,000.
#[tokio::test]
async fn a_look_and_a_creation_cost_the_same_with_many_names() {
    let mut costs = Vec::new();
    for number in [1, 5_000] {
        let (store, redis) = crate::support::redis().await;
        let engine = server(&store).await;
        let entries: Vec<(String, String)> = (0..number)
            .map(|at| (format!("n{at:04}"), String::new()))
            .collect();
        for register in [Register::Queues, Register::Names] {
            store.add_entries(register, &entries, at(0)).await.unwrap();
        }
        // The first one of a partition is followed by a look whether Redis still has the store: here all have some.
        for _ in 0..100 {
            create_at(&engine, named("n0000", "n0000", Retention::Forever), 0).await;
        }
        let monitor = redis.monitor();
        engine.poll_store().await.unwrap();
        create_at(&engine, named("n0000", "n0000", Retention::Forever), 1).await;
        sweep_until(&engine, 10).await;
        let _ = redis.raw("ECHO end");
        let commands = monitor.commands_until("end");
        assert!(
            commands
                .iter()
                .all(|command| !command.contains("HGETALL") || command.contains(":terms")),
            "{commands:?}"
        );
        costs.push(commands.len());
    }
    assert_eq!(costs[0], costs[1]);
}
