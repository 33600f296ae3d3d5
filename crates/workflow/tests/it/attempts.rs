//! Whoever wants to know is told of each attempt that ended, once, and of nothing else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_workflow::{
    Action, AttemptEnd, AttemptObserver, AttemptOutcome, Engine, EngineOptions, Failure, OnFailure,
    Outcome, Retry, RetryWish, StartMode, Store,
};

use crate::support::{at, claim, create_of, definition, report, succeed, take};

on_every_store! {
    each_attempt_that_ends_is_told_once
    what_ends_others_tells_of_them
    what_reaches_no_worker_is_no_attempt
}

/// What was told: job, attempt, fence, outcome, seconds from the claim to the end.
type Told = Arc<Mutex<Vec<String>>>;

async fn watched(store: &Store) -> (Engine, Told) {
    let told = Told::default();
    let list = Arc::clone(&told);
    let attempts = AttemptObserver::new(move |end: &AttemptEnd<'_>| {
        let AttemptEnd {
            graph,
            job,
            during,
            at,
            outcome,
            ..
        } = *end;
        let word = match outcome {
            AttemptOutcome::Succeeded => "succeeded".to_owned(),
            AttemptOutcome::Failed { kind, message } => format!("failed {kind} {message}"),
            AttemptOutcome::GivenBack => "given back".to_owned(),
            AttemptOutcome::Throttled => "throttled".to_owned(),
            AttemptOutcome::Crashed => "crashed".to_owned(),
            AttemptOutcome::Revoked(end) => end.word().to_owned(),
        };
        let took = at.since(during.started_at.unwrap()).as_secs();
        let name = &graph.jobs[job.index()].name;
        list.lock().unwrap().push(format!(
            "{name} {}/{} {word} {took}",
            during.attempt, during.fence
        ));
    });
    let options = EngineOptions {
        attempt_observer: Some(attempts),
        ..EngineOptions::default()
    };
    (Engine::start(store.clone(), options).await.unwrap(), told)
}

fn taken(told: &Told) -> Vec<String> {
    std::mem::take(&mut *told.lock().unwrap())
}

async fn each_attempt_that_ends_is_told_once(store: Store) {
    let (engine, told) = watched(&store).await;
    // Another server, which nobody asked to tell, takes the jobs.
    let other = crate::support::server(&store).await;
    let mut wanted = definition("a b<a");
    wanted.jobs[0].retry = Retry {
        limit: 1,
        backoff: Duration::ZERO,
        ..Retry::default()
    };
    wanted.jobs[1].timeout = Some(Duration::from_secs(20));
    create_of(&engine, wanted, StartMode::Now).await;
    let only = async |seconds: u64| take(&other, seconds).await.remove(0).lease;
    let lease = only(1).await;
    assert_eq!(taken(&told), [""; 0]);
    report(
        &engine,
        lease,
        Outcome::Returned {
            pause: Duration::ZERO,
        },
        3,
    )
    .await
    .unwrap();
    assert_eq!(taken(&told), ["a 1/1 given back 2"]);
    let lease = only(4).await;
    let failure = Failure {
        kind: "K".to_owned(),
        message: "why".to_owned(),
        trace: None,
    };
    let failed = Outcome::Failed {
        failure,
        retry: RetryWish::ByPolicy,
    };
    for _ in 0..2 {
        report(&engine, lease, failed.clone(), 5).await.unwrap();
    }
    assert_eq!(taken(&told), ["a 1/2 failed K why 1"]);
    let lease = only(6).await;
    succeed(&engine, lease, 8).await.unwrap();
    succeed(&engine, lease, 9).await.unwrap();
    assert_eq!(taken(&told), ["a 2/3 succeeded 2"]);
    only(10).await;
    engine.sweep(at(31)).await.unwrap();
    assert_eq!(taken(&told), ["b 1/1 timed_out 21"]);
}

async fn what_ends_others_tells_of_them(store: Store) {
    let (engine, told) = watched(&store).await;
    let mut wanted = definition("a b c");
    wanted.on_failure = OnFailure::FailFast;
    create_of(&engine, wanted, StartMode::Now).await;
    let leases = take(&engine, 1).await;
    report(&engine, leases[0].lease, crate::support::failure(), 2)
        .await
        .unwrap();
    let mut all = taken(&told);
    all.sort();
    let failed = leases[0].job().name.clone();
    assert_eq!(
        all.iter()
            .filter(|one| one.starts_with(&format!("{failed} 1/1 failed")))
            .count(),
        1
    );
    assert_eq!(
        (
            all.len(),
            all.iter()
                .filter(|one| one.ends_with("1/1 cancelled 1"))
                .count()
        ),
        (3, 2)
    );
    let id = create_of(&engine, definition("a b<a"), StartMode::Now).await;
    take(&engine, 3).await;
    engine.sweep(at(60)).await.unwrap();
    assert_eq!(taken(&told), ["a 1/1 expired 57"]);
    take(&engine, 61).await;
    engine
        .act(id, Action::CancelJob("a".to_owned()), at(62))
        .await
        .unwrap();
    assert_eq!(taken(&told), ["a 1/2 cancelled 1"]);
}

async fn what_reaches_no_worker_is_no_attempt(store: Store) {
    let (engine, told) = watched(&store).await;
    create_of(&engine, definition("a"), StartMode::Now).await;
    engine.poll_store().await.unwrap();
    let leases = engine
        .lease_except(
            &claim(1),
            &[],
            tidegate_workflow::ClaimMode::Immediate,
            at(1),
        )
        .await
        .unwrap();
    drop(leases);
    // What was given back is there again.
    let lease = loop {
        if let Some(claimed) = take(&engine, 2).await.pop() {
            break claimed.lease;
        }
        tokio::task::yield_now().await;
    };
    succeed(&engine, lease, 3).await.unwrap();
    assert_eq!(taken(&told), ["a 1/2 succeeded 1"]);
}
