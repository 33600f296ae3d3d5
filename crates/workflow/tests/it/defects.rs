//! What went wrong in Gush, one test for each, over every store. `D1` and so on are the numbers of docs/guarantees.md.

use std::time::Duration;

use tidegate_workflow::change::{Change, CreationRecord, Put, Write};
use tidegate_workflow::rows::Section;
use tidegate_workflow::{
    Action, Definition, EngineError, Graph, GraphError, JobState, Partition, Query, Refusal,
    Retention, Retry, StartMode, Status, Store, WorkflowId,
};

use crate::support::{
    at, claim, create, create_of, definition, failure, names, new, report, server, state, succeed,
    success, take,
};

on_every_store! {
    d1_a_job_that_is_retried_is_not_over
    d2_to_start_or_stop_never_undoes_what_a_job_did
    d3_what_creates_says_what_it_created_and_leaves_nothing_when_it_fails
    d4_a_pause_stops_what_has_not_begun_and_shows
    d5_a_server_that_dies_after_a_report_leaves_no_job_behind
    d6_many_parents_at_the_same_moment_need_no_lock_and_no_other_queue
    d7_a_fan_in_is_counted_once_however_long_it_takes
    d8_jobs_of_one_handler_are_told_apart
    d9_every_job_of_a_large_workflow_is_found
    d11_nothing_that_runs_is_removed
    d12_one_workflow_that_is_gone_hides_no_others
    d13_to_start_or_create_twice_is_to_do_it_once
    d14_a_worker_that_dies_gives_its_job_back
    d15_a_join_runs_once
}

async fn d1_a_job_that_is_retried_is_not_over(store: Store) {
    let engine = server(&store).await;
    let mut definition = definition("a b c<a,b");
    definition.jobs[0].retry = Retry {
        limit: 1,
        backoff: Duration::ZERO,
        ..Retry::default()
    };
    let id = create_of(&engine, definition, StartMode::Now).await;
    let both = take(&engine, 1).await;
    let (a, b) = (
        both.iter()
            .find(|claimed| claimed.job().name == "a")
            .unwrap(),
        &both[usize::from(both[0].job().name == "a")],
    );
    assert_eq!(
        report(&engine, a.lease, failure(), 2)
            .await
            .map(|reported| reported.job),
        Ok(JobState::Ready)
    );
    assert_eq!(names(&take(&engine, 3).await), ["a"]);
    succeed(&engine, b.lease, 4).await.unwrap();
    let snapshot = engine.show(id).await.unwrap();
    assert_eq!(
        (
            state(&snapshot, "a"),
            state(&snapshot, "c"),
            snapshot.meta().status
        ),
        ("running", "waiting", Status::Running)
    );
    // The worker dies in its second attempt: the job runs again, and is not passed over.
    engine.sweep(at(60)).await.unwrap();
    let again = take(&engine, 61).await;
    assert_eq!(names(&again), ["a"]);
    succeed(&engine, again[0].lease, 62).await.unwrap();
    let last = take(&engine, 63).await;
    assert_eq!((names(&last), last[0].inputs.len()), (vec!["c"], 2));
}

async fn d2_to_start_or_stop_never_undoes_what_a_job_did(store: Store) {
    let first = server(&store).await;
    let second = server(&store).await;
    let id = create(&first, "a b", StartMode::Now).await;
    let claimed = take(&second, 1).await;
    // The first server still remembers both as ready.
    succeed(&second, claimed[0].lease, 2).await.unwrap();
    assert_eq!(
        first.act(id, Action::Pause, at(3)).await,
        Ok(Status::Paused)
    );
    assert_eq!(
        first.act(id, Action::Resume, at(3)).await,
        Ok(Status::Running)
    );
    assert!(matches!(
        first.act(id, Action::Start, at(3)).await,
        Err(EngineError::Refused(_))
    ));
    let mut words: Vec<_> = first
        .show(id)
        .await
        .unwrap()
        .states()
        .iter()
        .map(|state| state.word())
        .collect();
    words.sort_unstable();
    assert_eq!(words, ["running", "succeeded"]);
    assert!(take(&first, 4).await.is_empty());
}

async fn d3_what_creates_says_what_it_created_and_leaves_nothing_when_it_fails(store: Store) {
    let engine = server(&store).await;
    let id = create(&engine, "a", StartMode::Later).await;
    assert_eq!(
        engine.show(id).await.unwrap().meta().status,
        Status::Pending
    );
    assert_eq!(
        engine.act(id, Action::Start, at(1)).await,
        Ok(Status::Running)
    );
    let mut other = definition("a b");
    other.idempotency_key = Some("key".to_owned());
    create_of(&engine, other.clone(), StartMode::Now).await;
    other.jobs.pop();
    let refused = engine
        .create(vec![new(other, StartMode::Now)], at(2))
        .await
        .remove(0);
    assert!(
        matches!(refused, Err(EngineError::KeyMismatch { .. })),
        "{refused:?}"
    );
    assert_eq!(
        engine
            .list(&Query {
                limit: 10,
                ..Query::default()
            })
            .await
            .unwrap()
            .items
            .len(),
        2
    );
}

async fn d4_a_pause_stops_what_has_not_begun_and_shows(store: Store) {
    let engine = server(&store).await;
    let id = create(&engine, "a b c<a", StartMode::Now).await;
    let a = engine.claim(&claim(1), at(1)).await.unwrap().remove(0);
    assert_eq!(
        engine.act(id, Action::Pause, at(2)).await,
        Ok(Status::Paused)
    );
    // A running job may finish, and what comes after it does not begin.
    assert_eq!(succeed(&engine, a.lease, 3).await, Ok(JobState::Succeeded));
    assert!(take(&engine, 4).await.is_empty());
    assert_eq!(engine.show(id).await.unwrap().meta().status, Status::Paused);
    engine.act(id, Action::Resume, at(5)).await.unwrap();
    let rest = take(&engine, 6).await;
    assert!(!rest.is_empty());
    assert_eq!(
        engine.act(id, Action::Cancel, at(7)).await,
        Ok(Status::Cancelled)
    );
    let late = succeed(&engine, rest[0].lease, 8).await;
    assert!(
        matches!(late, Err(EngineError::Refused(Refusal::LeaseLost { .. }))),
        "{late:?}"
    );
}

async fn d5_a_server_that_dies_after_a_report_leaves_no_job_behind(store: Store) {
    let chain = "a b<a c<b d<c";
    let id = create(&server(&store).await, chain, StartMode::Now).await;
    for (step, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        // Each server lives for one claim or one report: what it knew is gone, and no repair has run.
        let claimed = server(&store)
            .await
            .claim(&claim(9), at(step as u64))
            .await
            .unwrap();
        assert_eq!(names(&claimed), [name]);
        succeed(&server(&store).await, claimed[0].lease, step as u64)
            .await
            .unwrap();
    }
    assert_eq!(
        server(&store).await.show(id).await.unwrap().meta().status,
        Status::Succeeded
    );
}

async fn d6_many_parents_at_the_same_moment_need_no_lock_and_no_other_queue(store: Store) {
    const PARENTS: usize = 60;
    let servers = [
        server(&store).await,
        server(&store).await,
        server(&store).await,
    ];
    let parents: Vec<String> = (0..PARENTS).map(|parent| format!("p{parent}")).collect();
    let mut definition = definition(&format!("{} join<{}", parents.join(" "), parents.join(",")));
    definition.jobs[PARENTS].queue = "joins".to_owned();
    create_of(&servers[0], definition, StartMode::Now).await;
    let claimed = take(&servers[0], 1).await;
    assert_eq!(claimed.len(), PARENTS);
    let mut reports = tokio::task::JoinSet::new();
    for (at, claimed) in claimed.into_iter().enumerate() {
        let engine = servers[at % servers.len()].clone();
        reports.spawn(async move { succeed(&engine, claimed.lease, 2).await });
    }
    assert!(
        reports
            .join_all()
            .await
            .iter()
            .all(|reported| *reported == Ok(JobState::Succeeded))
    );
    assert!(
        take(&servers[1], 3).await.is_empty(),
        "nothing is in the queue of others"
    );
    let joins = tidegate_workflow::Claim {
        queues: vec!["joins".to_owned()],
        ..claim(9)
    };
    let join = servers[1].claim(&joins, at(3)).await.unwrap();
    assert_eq!(
        (names(&join), join[0].inputs.len()),
        (vec!["join"], PARENTS)
    );
}

async fn d7_a_fan_in_is_counted_once_however_long_it_takes(store: Store) {
    const HOUR: u64 = 3_600;
    let first = server(&store).await;
    let second = server(&store).await;
    create(&first, "a b join<a,b", StartMode::Now).await;
    let both = take(&first, 1).await;
    let expires = at(9 * HOUR);
    let extended = first
        .extend(
            both.iter()
                .map(|claimed| (claimed.lease, expires))
                .collect(),
            at(2),
        )
        .await;
    assert!(extended.iter().all(Result::is_ok));
    succeed(&second, both[0].lease, HOUR).await.unwrap();
    // The first server looks at what it knew an hour ago.
    succeed(&first, both[1].lease, 2 * HOUR).await.unwrap();
    let one = take(&first, 2 * HOUR).await;
    let other = take(&second, 2 * HOUR).await;
    assert_eq!((names(&one), other.len()), (vec!["join"], 0));
}

async fn d8_jobs_of_one_handler_are_told_apart(store: Store) {
    let engine = server(&store).await;
    create(&engine, "first second after_second<second", StartMode::Now).await;
    let both = take(&engine, 1).await;
    let named = |name: &str| {
        both.iter()
            .find(|claimed| claimed.job().name == name)
            .unwrap()
            .lease
    };
    assert_eq!(both[0].job().handler, both[1].job().handler);
    report(&engine, named("first"), success("\"first\""), 2)
        .await
        .unwrap();
    assert!(take(&engine, 3).await.is_empty());
    report(&engine, named("second"), success("\"second\""), 4)
        .await
        .unwrap();
    let after = take(&engine, 5).await;
    assert_eq!(
        (names(&after), &after[0].inputs[0].output[..]),
        (vec!["after_second"], &b"\"second\""[..])
    );
}

async fn d9_every_job_of_a_large_workflow_is_found(store: Store) {
    const JOBS: usize = 3_000;
    let engine = server(&store).await;
    let jobs: Vec<String> = (0..JOBS).map(|job| format!("job{job}")).collect();
    let id = create(&engine, &jobs.join(" "), StartMode::Later).await;
    for job in jobs.iter().step_by(97) {
        assert_eq!(
            engine.act(id, Action::SkipJob(job.clone()), at(1)).await,
            Ok(Status::Pending)
        );
    }
    let skipped = engine
        .show(id)
        .await
        .unwrap()
        .meta()
        .counts
        .count_by_word("skipped");
    assert_eq!(skipped as usize, JOBS.div_ceil(97));
    let none = engine
        .act(id, Action::SkipJob("job3000".to_owned()), at(3))
        .await;
    assert!(matches!(none, Err(EngineError::NoJob { .. })), "{none:?}");
}

#[test]
fn d10_cycles_and_missing_jobs_are_refused() {
    let build = |jobs: &str| Graph::build(definition(jobs));
    assert!(matches!(
        build("a<c b<a c<b"),
        Err(GraphError::Cycle { .. })
    ));
    assert!(matches!(build("a<a"), Err(GraphError::Cycle { .. })));
    assert!(matches!(
        build("a b<aa"),
        Err(GraphError::UnknownJob { .. })
    ));
    assert!(matches!(
        Graph::build(Definition::default()),
        Err(GraphError::NoJobs)
    ));
}

async fn d11_nothing_that_runs_is_removed(store: Store) {
    const YEAR: u64 = 365 * 86_400;
    let engine = server(&store).await;
    let mut definition = definition("a b<a");
    definition.retention = Some(Retention::For(Duration::from_secs(10)));
    let id = create_of(&engine, definition, StartMode::Now).await;
    let a = take(&engine, 1).await.remove(0);
    succeed(&engine, a.lease, 2).await.unwrap();
    engine.sweep(at(YEAR)).await.unwrap();
    let b = take(&engine, YEAR).await;
    assert_eq!((names(&b), b[0].inputs.len()), (vec!["b"], 1));
    succeed(&engine, b[0].lease, YEAR + 1).await.unwrap();
    engine.sweep(at(YEAR + 10)).await.unwrap();
    assert!(engine.show(id).await.is_ok(), "its time has not come");
    engine.sweep(at(YEAR + 11)).await.unwrap();
    assert!(matches!(
        engine.show(id).await,
        Err(EngineError::NoWorkflow { .. })
    ));
    // A late worker makes nothing new of it.
    assert!(matches!(
        succeed(&engine, b[0].lease, YEAR + 12).await,
        Err(EngineError::NoWorkflow { .. })
    ));
    assert!(
        engine
            .list(&Query {
                limit: 9,
                ..Query::default()
            })
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

async fn d12_one_workflow_that_is_gone_hides_no_others(store: Store) {
    let engine = server(&store).await;
    let id = create(&engine, "a", StartMode::Now).await;
    // An index row without a workflow, and a workflow that cannot be read: no engine writes either.
    let gone = WorkflowId::new(at(1), Partition(0), 1);
    let broken = WorkflowId::new(at(1), Partition(0), 2);
    let birth = CreationRecord {
        graph: vec![255; 9],
        label: vec![255; 9],
        idempotency_key: None,
    };
    let mut put = Put {
        meta: vec![255; 9],
        creation: Some(birth),
        ..Put::default()
    };
    put.index.add = [gone, broken]
        .map(|id| [Section::All.prefix(), id.bytes().to_vec()].concat())
        .to_vec();
    let change = Change {
        workflow: broken,
        expected: None,
        small: false,
        write: Write::Put(Box::new(put)),
    };
    store.apply(Partition(0), &[change]).await.unwrap();
    let page = engine
        .list(&Query {
            limit: 10,
            ..Query::default()
        })
        .await
        .unwrap();
    assert_eq!(
        page.items
            .iter()
            .map(|item| item.workflow)
            .collect::<Vec<_>>(),
        [id]
    );
}

async fn d13_to_start_or_create_twice_is_to_do_it_once(store: Store) {
    let first = server(&store).await;
    let second = server(&store).await;
    let id = create(&first, "a b", StartMode::Later).await;
    let (one, other) = tokio::join!(
        first.act(id, Action::Start, at(1)),
        second.act(id, Action::Start, at(1))
    );
    assert_eq!(
        [one, other]
            .iter()
            .filter(|started| **started == Ok(Status::Running))
            .count(),
        1
    );
    assert_eq!(
        take(&first, 2).await.len() + take(&second, 2).await.len(),
        2
    );
    let mut keyed = definition("a b");
    keyed.idempotency_key = Some("order 7".to_owned());
    let twice = |engine: &tidegate_workflow::Engine| {
        let engine = engine.clone();
        let new = vec![new(keyed.clone(), StartMode::Now)];
        async move { engine.create(new, at(3)).await.remove(0).unwrap() }
    };
    let (one, other) = tokio::join!(twice(&first), twice(&second));
    assert_eq!(
        (one.workflow, one.existing != other.existing),
        (other.workflow, true)
    );
    assert_eq!(
        take(&first, 4).await.len() + take(&second, 4).await.len(),
        2
    );
}

async fn d14_a_worker_that_dies_gives_its_job_back(store: Store) {
    let engine = server(&store).await;
    let id = create(&engine, "a b<a", StartMode::Now).await;
    for loss in 1..=4 {
        let claimed = take(&engine, loss * 100).await;
        assert_eq!((names(&claimed), claimed[0].attempt), (vec!["a"], 1));
        engine.sweep(at(loss * 100 + 29)).await.unwrap();
        assert_eq!(state(&engine.show(id).await.unwrap(), "a"), "running");
        engine.sweep(at(loss * 100 + 30)).await.unwrap();
    }
    // A job that takes every worker with it is not given to a fifth one.
    let snapshot = engine.show(id).await.unwrap();
    assert_eq!(
        (state(&snapshot, "a"), snapshot.meta().status),
        ("failed", Status::Failed)
    );
    let results = engine
        .results(id, &[snapshot.graph().find("a").unwrap()])
        .await
        .unwrap();
    assert_eq!(
        results[0]
            .errors
            .iter()
            .map(|error| error.kind.as_str())
            .collect::<Vec<_>>(),
        ["lost"; 4]
    );
}

async fn d15_a_join_runs_once(store: Store) {
    let servers = [server(&store).await, server(&store).await];
    create(&servers[0], "a b c join<a,b,c", StartMode::Now).await;
    let parents = take(&servers[0], 1).await;
    // Each reporter asks for more in the same call, and all of them at the same moment.
    let mut reports = tokio::task::JoinSet::new();
    for (place, parent) in parents.into_iter().enumerate() {
        let engine = servers[place % 2].clone();
        let reported = tidegate_workflow::Report {
            lease: parent.lease,
            outcome: success("1"),
        };
        reports.spawn(async move {
            engine
                .report(vec![reported], Some(&claim(9)), at(2))
                .await
                .1
                .unwrap()
                .len()
        });
    }
    let handed_over: usize = reports.join_all().await.into_iter().sum();
    let rest = take(&servers[0], 3).await.len() + take(&servers[1], 3).await.len();
    assert_eq!(handed_over + rest, 1);
}
