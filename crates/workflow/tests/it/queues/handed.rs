//! Jobs that become ready while a worker waits come leased, with the write that makes them ready.

use std::pin::Pin;
use std::task::{Context, Waker};

use tidegate_workflow::{
    Action, CallKind, Claim, Claimed, Definition, Engine, EngineError, Fault, JobState,
    LeasedBatch, Paused, Report, SimulatedStore, StartMode, Status, Store,
};

use crate::support::{
    at, claim, create, create_of, definition, names, new, redis, server, state, succeed, success,
    take,
};

on_every_store! {
    a_new_job_comes_leased_to_a_worker_that_waits
    what_follows_a_job_comes_leased_too_with_its_input
    each_worker_that_waits_gets_one_job_before_any_gets_another
    the_most_urgent_jobs_of_a_write_go_first
    who_leaves_with_a_job_gives_it_back
    jobs_that_a_worker_may_not_have_go_through_the_queue
    a_creation_that_was_there_before_leases_nothing
    what_else_is_ready_fills_up_the_claim
}

type Arrival<'a> = Pin<Box<dyn Future<Output = LeasedBatch> + 'a>>;

fn still_waits(arrival: &mut Arrival<'_>) -> bool {
    arrival
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

/// A worker that waits.
fn waits<'a>(engine: &'a Engine, claim: &'a Claim) -> Arrival<'a> {
    let mut arrival: Arrival<'a> = Box::pin(engine.arrival_for(claim, &[]));
    assert!(still_waits(&mut arrival), "there is nothing yet");
    arrival
}

async fn deliver(engine: &Engine, leases: LeasedBatch) -> Vec<Claimed> {
    engine.deliver(leases).await.unwrap()
}

/// It was one write that made it ready, and another one that leased it.
async fn a_new_job_comes_leased_to_a_worker_that_waits(store: Store) {
    let engine = server(&store).await;
    let asked = claim(1);
    let arrival = waits(&engine, &asked);
    let id = create(&engine, "a", StartMode::Now).await;
    let claimed = deliver(&engine, arrival.await).await;
    assert_eq!((names(&claimed), claimed[0].attempt), (vec!["a"], 1));
    let snapshot = engine.show(id).await.unwrap();
    assert_eq!(
        (state(&snapshot, "a"), snapshot.meta().version),
        ("running", 1)
    );
    assert!(take(&engine, 1).await.is_empty(), "nobody else has it");
    assert_eq!(
        succeed(&engine, claimed[0].lease, 2).await,
        Ok(JobState::Succeeded)
    );
    assert_eq!(
        engine.show(id).await.unwrap().meta().status,
        Status::Succeeded
    );
}

async fn what_follows_a_job_comes_leased_too_with_its_input(store: Store) {
    let engine = server(&store).await;
    create(&engine, "a b<a", StartMode::Now).await;
    let first = take(&engine, 1).await.remove(0);
    let asked = claim(1);
    let arrival = waits(&engine, &asked);
    succeed(&engine, first.lease, 2).await.unwrap();
    let claimed = deliver(&engine, arrival.await).await;
    assert_eq!(
        (names(&claimed), &*claimed[0].inputs[0].output),
        (vec!["b"], &b"1"[..])
    );
}

async fn each_worker_that_waits_gets_one_job_before_any_gets_another(store: Store) {
    let engine = server(&store).await;
    let asked = claim(3);
    let first = waits(&engine, &asked);
    let second = waits(&engine, &asked);
    create(&engine, "a b c d e f g", StartMode::Now).await;
    let first = deliver(&engine, first.await).await;
    let second = deliver(&engine, second.await).await;
    assert_eq!(
        (names(&first), names(&second)),
        (vec!["a", "c", "e"], vec!["b", "d", "f"])
    );
    assert_eq!(names(&take(&engine, 1).await), ["g"]);
}

/// They went in the order of the definition, and an urgent one waited in the queue.
async fn the_most_urgent_jobs_of_a_write_go_first(store: Store) {
    let engine = server(&store).await;
    let asked = claim(2);
    let of_priority = |jobs: &str| {
        let mut definition = definition(jobs);
        for (at, job) in definition.jobs.iter_mut().enumerate() {
            job.priority = at as u8;
        }
        definition
    };
    let arrival = waits(&engine, &asked);
    create_of(&engine, of_priority("a b c d"), StartMode::Now).await;
    assert_eq!(names(&deliver(&engine, arrival.await).await), ["c", "d"]);
    take(&engine, 1).await;
    // What a report makes ready goes to whoever reports.
    create_of(
        &engine,
        of_priority("root x<root y<root z<root"),
        StartMode::Now,
    )
    .await;
    let root = take(&engine, 2).await.remove(0);
    let report = Report {
        lease: root.lease,
        outcome: success("1"),
    };
    let (_, next) = engine.report(vec![report], Some(&claim(1)), at(3)).await;
    assert_eq!(names(&next.unwrap()), ["z"]);
    take(&engine, 4).await;
    // Workflows that are created together, in one partition.
    let arrival = waits(&engine, &asked);
    let urgent = |priority: u8| {
        let mut definition = definition(&format!("p{priority}"));
        definition.jobs[0].priority = priority;
        new(definition, StartMode::Now)
    };
    engine
        .create((0..8).map(urgent).collect(), at(5))
        .await
        .into_iter()
        .for_each(|created| assert!(created.is_ok()));
    assert_eq!(names(&deliver(&engine, arrival.await).await), ["p7"]);
}

async fn who_leaves_with_a_job_gives_it_back(store: Store) {
    let engine = server(&store).await;
    let asked = claim(1);
    let leaves = waits(&engine, &asked);
    let stays = waits(&engine, &asked);
    create(&engine, "a", StartMode::Now).await;
    drop(leaves);
    let claimed = deliver(&engine, stays.await).await;
    assert_eq!(names(&claimed), ["a"], "the other one has it");
    assert_eq!(claimed[0].attempt, 1, "nothing was attempted");
    assert!(claimed[0].fence > 1, "it was leased before");
}

async fn jobs_that_a_worker_may_not_have_go_through_the_queue(store: Store) {
    let engine = server(&store).await;
    let other = Claim {
        handlers: Some(vec!["other".to_owned()]),
        ..claim(1)
    };
    let elsewhere = Claim {
        queues: vec!["elsewhere".to_owned()],
        ..claim(1)
    };
    let mut of_others = waits(&engine, &other);
    let away = waits(&engine, &elsewhere);
    create(&engine, "a", StartMode::Now).await;
    assert!(still_waits(&mut of_others));
    assert_eq!(names(&take(&engine, 1).await), ["a"]);
    // A queue that is paused, and a workflow that is.
    engine
        .set_queue_paused("elsewhere", Paused::Yes)
        .await
        .unwrap();
    let mut paused = definition("b");
    paused.jobs[0].queue = "elsewhere".to_owned();
    create_of(&engine, paused, StartMode::Now).await;
    assert!(away.await.is_empty(), "the queue is paused");
    let asked = claim(1);
    let mut waits = waits(&engine, &asked);
    let later = create(&engine, "c", StartMode::Later).await;
    assert!(still_waits(&mut waits), "it was not started");
    engine.act(later, Action::Start, at(2)).await.unwrap();
    assert_eq!(names(&deliver(&engine, waits.await).await), ["c"]);
}

async fn a_creation_that_was_there_before_leases_nothing(store: Store) {
    let first = server(&store).await;
    let second = server(&store).await;
    let keyed = || Definition {
        idempotency_key: Some("key".to_owned()),
        ..definition("a")
    };
    let id = create_of(&first, keyed(), StartMode::Now).await;
    let asked = claim(1);
    let arrival = waits(&second, &asked);
    assert_eq!(create_of(&second, keyed(), StartMode::Now).await, id);
    assert!(arrival.await.is_empty(), "it looks for itself");
    let claimed = take(&second, 1).await;
    assert_eq!(
        (
            names(&claimed),
            claimed[0].lease.workflow,
            claimed[0].attempt
        ),
        (vec!["a"], id, 1)
    );
}

async fn what_else_is_ready_fills_up_the_claim(store: Store) {
    let engine = server(&store).await;
    let asked = claim(3);
    let arrival = waits(&engine, &asked);
    let jobs = ["a", "b", "c", "d"].map(|name| new(definition(name), StartMode::Now));
    engine
        .create(jobs.into(), at(0))
        .await
        .into_iter()
        .for_each(|created| assert!(created.is_ok()));
    let leases = engine.fill_up(arrival.await, &asked, &[], at(1)).await;
    assert_eq!(deliver(&engine, leases).await.len(), 3);
    assert_eq!(take(&engine, 2).await.len(), 1);
}

/// A write that fails leases nothing, and the worker waits for others again.
#[tokio::test]
async fn a_write_that_fails_leases_nothing() {
    let store = SimulatedStore::new(1);
    let engine = server(&Store::Simulated(store.clone())).await;
    create(&engine, "known", StartMode::Now).await;
    take(&engine, 0).await;
    let asked = claim(1);
    let arrival = waits(&engine, &asked);
    store.inject(|call| {
        if call == CallKind::Write {
            Fault::Refused
        } else {
            Fault::None
        }
    });
    let created = engine
        .create(vec![new(definition("a"), StartMode::Now)], at(0))
        .await
        .remove(0);
    assert!(matches!(created, Err(EngineError::Store(_))), "{created:?}");
    assert!(arrival.await.is_empty(), "it looks for itself");
    store.inject(|_| Fault::None);
    let arrival = engine.arrival(&asked.queues);
    create(&engine, "b", StartMode::Now).await;
    arrival.await;
    assert_eq!(names(&take(&engine, 1).await), ["b"]);
}

/// The answer to the write was lost, and the write was not: the store says whose lease it has.
#[tokio::test]
async fn a_write_whose_answer_is_lost_leases_once() {
    let store = SimulatedStore::new(1);
    let engine = server(&Store::Simulated(store.clone())).await;
    create(&engine, "known", StartMode::Now).await;
    take(&engine, 0).await;
    let asked = claim(1);
    let arrival = waits(&engine, &asked);
    let mut faults = vec![Fault::AnswerLost];
    store.inject(move |call| {
        if call == CallKind::Write {
            faults.pop().unwrap_or(Fault::None)
        } else {
            Fault::None
        }
    });
    let id = create(&engine, "a", StartMode::Now).await;
    let claimed = deliver(&engine, arrival.await).await;
    assert_eq!(
        (names(&claimed), claimed[0].lease.workflow),
        (vec!["a"], id)
    );
    assert_eq!(
        succeed(&engine, claimed[0].lease, 1).await,
        Ok(JobState::Succeeded)
    );
}

/// In Redis, a job for a worker that waits takes no more than what creates it.
#[tokio::test]
async fn a_job_for_a_worker_that_waits_takes_one_script() {
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    create(&engine, "known", StartMode::Now).await;
    take(&engine, 1).await;
    let asked = claim(1);
    let arrival = waits(&engine, &asked);
    let monitor = redis.monitor();
    create(&engine, "a", StartMode::Now).await;
    assert_eq!(deliver(&engine, arrival.await).await.len(), 1);
    let _ = redis.raw("ECHO end");
    let sent = monitor.commands_until("end");
    let scripts = sent
        .iter()
        .filter(|command| command.starts_with("\"EVALSHA\""))
        .count();
    assert_eq!(scripts, 1, "{sent:?}");
}
