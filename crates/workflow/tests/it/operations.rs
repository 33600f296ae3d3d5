//! What operators and workers notice when much is asked at once, callers leave, or the clock is wrong.

use std::time::Duration;

use tidegate_workflow::{
    Action, Claim, Definition, Filter, JobDefinition, Json, Paused, RestartScope, Retry, StartMode,
    Status, WaitReason,
};

use super::support::*;

#[tokio::test]
async fn a_worker_that_leaves_while_the_store_is_read_leaves_the_job() {
    let (store, _redis) = redis().await;
    let engine = server(&store).await;
    create(&engine, "a", StartMode::Now).await;
    let wanted = claim(1_000);
    tokio::select! {
        biased;
        _ = engine.claim(&wanted, at(1)) => panic!("a store on a socket does not answer at once"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(names(&take(&engine, 2).await), ["a"]);
}

/// One job after the other, `length` in all.
fn chain(length: usize) -> Definition {
    let job = |at: usize| {
        let after = at
            .checked_sub(1)
            .map(|before| before.to_string())
            .into_iter()
            .collect();
        JobDefinition {
            after,
            ..JobDefinition::new(at.to_string(), "handler")
        }
    };
    Definition {
        name: "chain".to_owned(),
        jobs: (0..length).map(job).collect(),
        ..Definition::default()
    }
}

#[tokio::test]
async fn what_follows_a_job_is_settled_in_one_pass() {
    // Once, each skipped job cost a look at all others: minutes.
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    let id = create_of(&engine, chain(20_000), StartMode::Now).await;
    let skip = engine.act(id, Action::SkipJob("0".to_owned()), at(1));
    let skipped = tokio::time::timeout(Duration::from_secs(20), skip).await;
    assert_eq!(skipped, Ok(Ok(Status::Succeeded)));
    let jobs = vec!["19999".to_owned(); 100_000];
    let restart = engine.act(
        id,
        Action::Restart {
            jobs,
            scope: RestartScope::Chosen,
        },
        at(2),
    );
    let restarted = tokio::time::timeout(Duration::from_secs(20), restart).await;
    assert_eq!(
        restarted,
        Ok(Ok(Status::Succeeded)),
        "its parent was skipped, and so is it"
    );
}

#[tokio::test]
async fn numbers_count_each_workflow_once_whatever_the_filter() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    let of = |name: &str, tag: &str| {
        let name = name.to_owned();
        let tags = vec![tag.to_owned()];
        Definition {
            name,
            tags,
            ..definition("a")
        }
    };
    for (name, tag) in [
        ("one", "red"),
        ("one", "blue"),
        ("two", "red"),
        ("two", "red"),
    ] {
        create_of(&engine, of(name, tag), StartMode::Now).await;
    }
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let filter = |name: &str, tag: &str, statuses: &[Status]| Filter {
        statuses: statuses.to_vec(),
        name: some(name),
        tag: some(tag),
        ..Filter::default()
    };
    for (filter, running) in [
        (filter("", "", &[Status::Running; 3]), 4),
        (filter("", "red", &[Status::Running]), 3),
        (filter("one", "", &[Status::Running]), 2),
        (filter("one", "red", &[Status::Running]), 1),
        (filter("none", "red", &[Status::Running]), 0),
    ] {
        assert_eq!(
            engine.count(&filter).await.unwrap().found,
            [(Status::Running, running)],
            "{filter:?}"
        );
    }
    let by_name = async |filter: Filter| -> Vec<(String, u64)> {
        let counted = engine
            .count_by_name(&filter, None, 100)
            .await
            .unwrap()
            .found;
        assert_eq!(counted.next, None);
        counted
            .names
            .into_iter()
            .map(|(name, counts)| (name, counts.iter().map(|(_, number)| number).sum()))
            .collect()
    };
    let named = |one, two| vec![("one".to_owned(), one), ("two".to_owned(), two)];
    assert_eq!(by_name(filter("", "", &[])).await, named(2, 2));
    assert_eq!(by_name(filter("", "red", &[])).await, named(1, 2));
    assert_eq!(by_name(filter("two", "", &[])).await, named(2, 2)[1..]);
    assert_eq!(by_name(filter("", "", &[Status::Failed])).await, []);
}

#[tokio::test]
async fn each_state_says_why_its_job_does_not_run() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    let mut wanted = definition("a b<a c<b late again");
    wanted.jobs[3].wait = Duration::from_secs(60);
    wanted.jobs[4].retry = Retry {
        limit: 1,
        backoff: Duration::from_secs(5),
        ..Retry::default()
    };
    let id = create_of(&engine, wanted, StartMode::Later).await;
    let why = async |name: &str| {
        let snapshot = engine.show(id).await.unwrap();
        snapshot.why_not_running(snapshot.graph().find(name).unwrap())
    };
    let graph = engine.show(id).await.unwrap().graph().clone();
    let job = |name: &str| graph.find(name).unwrap();
    assert_eq!(why("a").await, Some(WaitReason::NotStarted));
    engine.sweep(at(1)).await.unwrap();
    engine.act(id, Action::Start, at(1)).await.unwrap();
    assert_eq!(why("a").await, Some(WaitReason::NoWorker));
    assert_eq!(why("c").await, Some(WaitReason::WaitsFor(vec![job("b")])));
    assert_eq!(why("late").await, Some(WaitReason::Until(at(61))));
    let set_paused = async |paused| engine.set_queue_paused("default", paused).await.unwrap();
    set_paused(Paused::Yes).await;
    assert_eq!(why("a").await, Some(WaitReason::QueuePaused));
    engine.act(id, Action::Pause, at(1)).await.unwrap();
    assert_eq!(why("a").await, Some(WaitReason::WorkflowPaused));
    engine.act(id, Action::Resume, at(1)).await.unwrap();
    set_paused(Paused::No).await;
    let taken = engine.claim(&claim(1), at(2)).await.unwrap();
    assert_eq!(taken[0].job().name, "a");
    assert_eq!(why("a").await, None, "it runs");
    assert_eq!(
        why("again").await,
        Some(WaitReason::InQueue),
        "the worker is busy, and will come again"
    );
    let retried = engine.claim(&claim(1), at(2)).await.unwrap();
    report(&engine, retried[0].lease, failure(), 3)
        .await
        .unwrap();
    assert_eq!(why("again").await, Some(WaitReason::Until(at(8))));
    engine.sweep(at(300)).await.unwrap();
    assert_eq!(
        why("again").await,
        Some(WaitReason::NoWorker),
        "nobody has asked for long"
    );
    let lost = engine.claim(&claim(9), at(301)).await.unwrap();
    let a = lost
        .iter()
        .find(|claimed| claimed.job().name == "a")
        .unwrap();
    report(&engine, a.lease, failure(), 302).await.unwrap();
    assert_eq!(why("a").await, None, "it is over");
    assert_eq!(why("b").await, Some(WaitReason::BlockedBy(vec![job("a")])));
    assert_eq!(why("c").await, Some(WaitReason::BlockedBy(vec![job("b")])));
}

#[tokio::test]
async fn a_clock_that_is_set_back_delays_and_loses_nothing() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    let hour = 3_600;
    let old = create(&engine, "a b<a", StartMode::Now).await;
    let held = engine.claim(&claim(1), at(2 * hour)).await.unwrap();
    // An hour back: the lease goes on, can be extended, and its report counts.
    assert!(!engine.sweep(at(hour)).await.unwrap());
    let extended = engine
        .extend(vec![(held[0].lease, at(hour) + LEASE)], at(hour))
        .await;
    assert_eq!(extended, [Ok(())]);
    assert_eq!(state(&engine.show(old).await.unwrap(), "a"), "running");
    succeed(&engine, held[0].lease, hour + 1).await.unwrap();
    let next = engine.claim(&claim(9), at(hour + 1)).await.unwrap();
    assert_eq!(names(&next), ["b"]);
    // The worker dies, and the lease ends in the new time.
    engine.sweep(at(hour + 32)).await.unwrap();
    let again = engine.claim(&claim(9), at(hour + 33)).await.unwrap();
    assert_eq!(
        (
            names(&again),
            succeed(&engine, again[0].lease, hour + 34).await.is_ok()
        ),
        (vec!["b"], true)
    );
    let over = engine.show(old).await.unwrap().meta().clone();
    assert_eq!(
        (over.status, over.finished_at),
        (Status::Succeeded, Some(at(hour + 34)))
    );
}

#[tokio::test]
async fn a_server_that_stood_still_for_an_hour_takes_late_reports_or_hands_out_anew() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    let mut wanted = definition("slow quick");
    wanted.jobs[1].timeout = Some(Duration::from_secs(60));
    let id = create_of(&engine, wanted, StartMode::Now).await;
    let held = engine.claim(&claim(9), at(1)).await.unwrap();
    let of = |name: &str| {
        held.iter()
            .find(|claimed| claimed.job().name == name)
            .unwrap()
            .lease
    };
    // Nobody had the job meanwhile: what the worker did counts, if its report comes before the first sweep.
    assert!(succeed(&engine, of("slow"), 3_600).await.is_ok());
    engine.sweep(at(3_600)).await.unwrap();
    assert!(
        succeed(&engine, of("quick"), 3_601).await.is_err(),
        "its lease was over, and after that its time was out"
    );
    let again = take(&engine, 3_603).await;
    assert_eq!(
        (names(&again), again[0].attempt),
        (vec!["quick"], 1),
        "the lost lease counts, which came first"
    );
    assert!(succeed(&engine, again[0].lease, 3_604).await.is_ok());
    assert_eq!(
        engine.show(id).await.unwrap().meta().status,
        Status::Succeeded
    );
}

#[tokio::test]
async fn many_queues_are_entered_together_and_listed() {
    let (store, _folder) = sqlite().await;
    let engine = server(&store).await;
    let job = |at: usize| JobDefinition {
        queue: format!("q{at}"),
        ..JobDefinition::new(format!("j{at}"), "handler")
    };
    let wanted = Definition {
        name: "wide".to_owned(),
        jobs: (0..3_000).map(job).collect(),
        ..Definition::default()
    };
    // Once, each queue was entered for itself after a look at all others.
    let created = tokio::time::timeout(
        Duration::from_secs(20),
        create_of(&engine, wanted, StartMode::Now),
    )
    .await;
    assert!(created.is_ok());
    assert_eq!(engine.queue_states().await.unwrap().found.len(), 3_000);
    assert_eq!(engine.has_queue("q2999").await, Ok(true));
    assert_eq!(engine.has_queue("q3000").await, Ok(false));
    let names: Vec<String> = (0..3_000).map(|at| format!("q{at}")).collect();
    let all = Claim {
        queues: names[..100].to_vec(),
        ..claim(1_000)
    };
    assert_eq!(engine.claim(&all, at(1)).await.unwrap().len(), 100);
}

/// JSON text of this many bytes.
fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

#[tokio::test]
async fn a_claim_carries_no_more_than_fits_and_the_rest_is_claimed_next() {
    const JOBS: usize = 200;
    let (store, _redis) = redis().await;
    let engine = server(&store).await;
    let params = Json::parse(format!("{{\"a\":{}}}", text((256 << 10) - 6))).unwrap();
    let job = |at: usize| JobDefinition {
        params: Some(params.clone()),
        ..JobDefinition::new(at.to_string(), "handler")
    };
    let jobs = (0..JOBS).map(job).collect();
    create_of(
        &engine,
        Definition {
            name: "large".to_owned(),
            jobs,
            ..Definition::default()
        },
        StartMode::Now,
    )
    .await;
    let first = engine.claim(&claim(JOBS), at(1)).await.unwrap();
    assert_eq!(first.len(), (32 << 20) / (256 << 10));
    let wanted = claim(JOBS);
    let all_others = async {
        let mut others = Vec::new();
        while first.len() + others.len() < JOBS {
            // What did not fit goes back to the queue, and wakes who waits there.
            let arrival = engine.arrival(&wanted.queues);
            let claimed = engine.claim(&wanted, at(1)).await.unwrap();
            if claimed.is_empty() {
                arrival.await;
            }
            others.extend(claimed);
        }
        others
    };
    let others = tokio::time::timeout(Duration::from_secs(20), all_others)
        .await
        .unwrap();
    assert!(
        others
            .iter()
            .all(|claimed| claimed.attempt == 1 && claimed.omitted.is_empty())
    );
}

#[tokio::test]
async fn a_join_of_more_than_fits_is_handed_out_and_says_what_is_missing() {
    const PARENTS: usize = 40;
    let (store, _redis) = redis().await;
    let engine = server(&store).await;
    let parents: Vec<String> = (0..PARENTS).map(|parent| parent.to_string()).collect();
    create(
        &engine,
        &format!("{} join<{}", parents.join(" "), parents.join(",")),
        StartMode::Now,
    )
    .await;
    let output = text(1 << 20);
    for claimed in take(&engine, 1).await {
        report(&engine, claimed.lease, success(&output), 2)
            .await
            .unwrap();
    }
    let join = take(&engine, 3).await.remove(0);
    assert_eq!((join.inputs.len(), join.omitted.len()), (32, PARENTS - 32));
    assert!(
        join.inputs
            .iter()
            .all(|input| input.output.len() == 1 << 20)
    );
    let outputs = engine
        .results(join.lease.workflow, &join.omitted)
        .await
        .unwrap();
    assert!(outputs.iter().all(|result| {
        result
            .output
            .as_ref()
            .is_some_and(|output| output.len() == 1 << 20)
    }));
}
