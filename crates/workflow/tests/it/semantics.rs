//! What users rely on when jobs fail, run again or are looked at: the same over every store.

mod leases;
mod repeated;

use std::time::Duration;

use tidegate_workflow::{
    Action, Claimed, Condition, Definition, Engine, EngineError, Failure, Input, JobIndex,
    JobState, Json, LeaseRef, Outcome, Refusal, Report, RestartScope, Retry, RetryWish, StartMode,
    Status, Store, TriggerRule, WaitReason, WorkflowId,
};

use crate::support::{
    at, create, create_of, definition, failure, names, new, report, server, state, succeed,
    success, take,
};

on_every_store! {
    a_restart_makes_what_comes_after_wait_again
    a_job_that_runs_during_a_restart_ends_with_what_it_was_given
    a_job_that_lost_its_worker_during_a_restart_waits_for_it
    a_restart_of_what_is_blocked_needs_what_failed
    all_done_waits_for_the_end_of_every_ancestor
    an_alarm_rings_before_the_others_have_ended
    a_retry_gives_hope_to_what_was_doomed
    parts_of_a_workflow_are_as_the_whole
}

fn one<'a>(claimed: &'a [Claimed], name: &str) -> &'a Claimed {
    claimed
        .iter()
        .find(|claimed| claimed.job().name == name)
        .unwrap()
}

fn restart(job: &str) -> Action {
    Action::Restart {
        jobs: vec![job.to_owned()],
        scope: RestartScope::Chosen,
    }
}

fn with_rule(jobs: &str, job: &str, rule: TriggerRule) -> Definition {
    let mut definition = definition(jobs);
    definition
        .jobs
        .iter_mut()
        .find(|wanted| wanted.name == job)
        .unwrap()
        .rule = rule;
    definition
}

/// Runs the only job that is ready.
async fn run(engine: &Engine, name: &str, output: &str, seconds: u64) -> Claimed {
    let claimed = take(engine, seconds).await;
    assert_eq!(names(&claimed), [name]);
    report(engine, claimed[0].lease, success(output), seconds)
        .await
        .unwrap();
    claimed.into_iter().next().unwrap()
}

async fn reason(engine: &Engine, id: WorkflowId, job: u32) -> Option<WaitReason> {
    engine
        .show(id)
        .await
        .unwrap()
        .why_not_running(JobIndex(job))
}

async fn a_restart_makes_what_comes_after_wait_again(store: Store) {
    let engine = server(&store).await;
    let mut wanted = definition("a b<a c<a d<b");
    wanted.jobs[2].wait = Duration::from_secs(60);
    let id = create_of(&engine, wanted, StartMode::Now).await;
    run(&engine, "a", "1", 1).await;
    let before = engine.show(id).await.unwrap();
    assert_eq!(
        (state(&before, "b"), state(&before, "c")),
        ("ready", "scheduled")
    );
    engine.act(id, restart("a"), at(2)).await.unwrap();
    let after = engine.show(id).await.unwrap();
    assert_eq!(
        (state(&after, "a"), state(&after, "b"), state(&after, "c")),
        ("ready", "waiting", "waiting")
    );
    assert_eq!(after.meta().status, Status::Running);
    run(&engine, "a", "2", 3).await;
    let b = run(&engine, "b", "0", 4).await;
    assert_eq!((&b.inputs[0].output[..], b.attempt), (&b"2"[..], 1));
}

/// The one job that is ready is claimed, and fails.
async fn fail_only(engine: &Engine, claimed: u64, failed: u64) {
    let job = only(engine, claimed).await;
    report(engine, job.lease, failure(), failed).await.unwrap();
}

async fn a_restart_of_what_is_blocked_needs_what_failed(store: Store) {
    let engine = server(&store).await;
    let id = create_of(&engine, definition("bad last<bad"), StartMode::Now).await;
    let already = async |action: Action, seen: u64, now: u64| {
        let acted = engine.act_if(id, action, as_of(seen), at(now)).await;
        assert_eq!(acted.map(|acted| acted.already_done), Ok(true));
    };
    fail_only(&engine, 1, 2).await;
    let refused = engine.act(id, restart("last"), at(3)).await;
    let blocked = matches!(
        &refused,
        Err(EngineError::Refused(Refusal::WrongJobState {
            state: "blocked",
            ..
        }))
    );
    assert!(blocked, "nothing would follow: {refused:?}");
    // With the moment that was seen, the answers are the same.
    for action in [restart("last"), Action::RetryJob("last".to_owned())] {
        let without = engine.act(id, action.clone(), at(3)).await;
        assert!(
            matches!(without, Err(EngineError::Refused(_))),
            "{without:?}"
        );
        let with = engine.act_if(id, action, as_of(3), at(3)).await;
        assert_eq!(with.map(|acted| acted.status), without);
    }
    let both = Action::Restart {
        jobs: vec!["last".to_owned(), "bad".to_owned()],
        scope: RestartScope::Chosen,
    };
    engine
        .act_if(id, both.clone(), as_of(2), at(4))
        .await
        .unwrap();
    engine
        .act(id, restart("last"), at(5))
        .await
        .expect("it is about to run");
    fail_only(&engine, 5, 5).await;
    // What failed has failed once more.
    already(both.clone(), 2, 5).await;
    engine.act_if(id, both, as_of(5), at(5)).await.unwrap();
    run(&engine, "bad", "1", 6).await;
    run(&engine, "last", "1", 7).await;
    // Restarted with what comes before it, it is blocked once more.
    let cascade = Action::Restart {
        jobs: vec!["bad".to_owned()],
        scope: RestartScope::AndDescendants,
    };
    engine.act(id, cascade, at(8)).await.unwrap();
    fail_only(&engine, 9, 9).await;
    // It was restarted since.
    already(restart("last"), 7, 10).await;
    assert_eq!(
        engine.act_if(id, restart("last"), as_of(9), at(10)).await,
        Err(refused.unwrap_err())
    );
}

async fn a_job_that_runs_during_a_restart_ends_with_what_it_was_given(store: Store) {
    let engine = server(&store).await;
    let id = create_of(&engine, definition("a b<a c<b"), StartMode::Now).await;
    run(&engine, "a", "1", 1).await;
    let b = take(&engine, 2).await.remove(0);
    engine.act(id, restart("a"), at(3)).await.unwrap();
    assert_eq!(state(&engine.show(id).await.unwrap(), "b"), "running");
    assert_eq!(succeed(&engine, b.lease, 4).await, Ok(JobState::Succeeded));
    assert_eq!(names(&take(&engine, 5).await), ["a", "c"]);
}

async fn a_job_that_lost_its_worker_during_a_restart_waits_for_it(store: Store) {
    let engine = server(&store).await;
    let id = create_of(&engine, definition("a b<a"), StartMode::Now).await;
    run(&engine, "a", "1", 1).await;
    assert_eq!(names(&take(&engine, 2).await), ["b"]);
    engine.act(id, restart("a"), at(3)).await.unwrap();
    engine.sweep(at(60)).await.unwrap();
    let snapshot = engine.show(id).await.unwrap();
    assert_eq!(
        (state(&snapshot, "b"), snapshot.jobs()[1].lost),
        ("waiting", 1)
    );
    run(&engine, "a", "2", 61).await;
    let b = run(&engine, "b", "0", 62).await;
    assert_eq!((&b.inputs[0].output[..], b.attempt), (&b"2"[..], 1));
    assert_eq!(
        engine.show(id).await.unwrap().meta().status,
        Status::Succeeded
    );
}

async fn all_done_waits_for_the_end_of_every_ancestor(store: Store) {
    let engine = server(&store).await;
    let wanted = with_rule(
        "bad slow publish<bad,slow cleanup<publish",
        "cleanup",
        TriggerRule::AllDone,
    );
    let id = create_of(&engine, wanted, StartMode::Now).await;
    let both = take(&engine, 1).await;
    report(&engine, one(&both, "bad").lease, failure(), 2)
        .await
        .unwrap();
    assert!(take(&engine, 3).await.is_empty(), "slow is still running");
    let doomed = WaitReason::Unreachable {
        by: vec![JobIndex(0)],
        waits_for: vec![JobIndex(1)],
    };
    assert_eq!(reason(&engine, id, 2).await, Some(doomed));
    assert_eq!(
        reason(&engine, id, 3).await,
        Some(WaitReason::WaitsFor(vec![JobIndex(2)]))
    );
    succeed(&engine, one(&both, "slow").lease, 4).await.unwrap();
    assert_eq!(
        reason(&engine, id, 2).await,
        Some(WaitReason::BlockedBy(vec![JobIndex(0)]))
    );
    run(&engine, "cleanup", "0", 5).await;
    assert_eq!(engine.show(id).await.unwrap().meta().status, Status::Failed);
}

async fn an_alarm_rings_before_the_others_have_ended(store: Store) {
    let engine = server(&store).await;
    let wanted = with_rule(
        "bad slow publish<bad,slow alarm<publish",
        "alarm",
        TriggerRule::AnyFailed,
    );
    let id = create_of(&engine, wanted, StartMode::Now).await;
    let both = take(&engine, 1).await;
    report(&engine, one(&both, "bad").lease, failure(), 2)
        .await
        .unwrap();
    let snapshot = engine.show(id).await.unwrap();
    assert_eq!(
        (state(&snapshot, "slow"), state(&snapshot, "alarm")),
        ("running", "ready")
    );
    // What failed runs again: there is nothing to ring for.
    engine.act(id, Action::RetryFailed, at(3)).await.unwrap();
    let claimed = take(&engine, 4).await;
    assert_eq!(names(&claimed), ["bad"]);
    succeed(&engine, claimed[0].lease, 5).await.unwrap();
    succeed(&engine, one(&both, "slow").lease, 5).await.unwrap();
    run(&engine, "publish", "0", 6).await;
    let snapshot = engine.show(id).await.unwrap();
    assert_eq!(
        (state(&snapshot, "alarm"), snapshot.meta().status),
        ("skipped", Status::Succeeded)
    );
}

async fn a_retry_gives_hope_to_what_was_doomed(store: Store) {
    let engine = server(&store).await;
    let id = create_of(
        &engine,
        definition("bad slow join<bad,slow last<join"),
        StartMode::Now,
    )
    .await;
    let both = take(&engine, 1).await;
    report(&engine, one(&both, "bad").lease, failure(), 2)
        .await
        .unwrap();
    assert!(
        engine.show(id).await.unwrap().is_unreachable(JobIndex(3)),
        "so is what comes after what is doomed"
    );
    engine.act(id, Action::RetryFailed, at(3)).await.unwrap();
    let waits = WaitReason::WaitsFor(vec![JobIndex(0), JobIndex(1)]);
    assert_eq!(reason(&engine, id, 2).await, Some(waits));
    run(&engine, "bad", "1", 4).await;
    succeed(&engine, one(&both, "slow").lease, 5).await.unwrap();
    run(&engine, "join", "1", 6).await;
    run(&engine, "last", "1", 7).await;
    assert_eq!(
        engine.show(id).await.unwrap().meta().status,
        Status::Succeeded
    );
}

fn as_of(seconds: u64) -> Condition {
    Condition {
        as_of: Some(at(seconds)),
        ..Condition::default()
    }
}

/// The only job that is ready.
async fn only(engine: &Engine, seconds: u64) -> Claimed {
    let mut claimed = take(engine, seconds).await;
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

/// Whatever has happened to it: jobs that wait, run, failed, are blocked or doomed.
async fn parts_of_a_workflow_are_as_the_whole(store: Store) {
    let engine = server(&store).await;
    let jobs = "a b c<a,b d<c e<b f g<d,f";
    let id = create(&engine, jobs, StartMode::Now).await;
    let check = async || {
        let whole = engine.show(id).await.unwrap();
        let outline = engine.workflow_summary(id).await.unwrap();
        assert_eq!(outline.listed.meta, *whole.meta());
        let all: Vec<JobIndex> = (0..whole.jobs().len() as u32).map(JobIndex).collect();
        assert_eq!(
            outline.blocked as usize,
            all.iter().filter(|&&job| whole.is_blocked(job)).count()
        );
        for some in all.chunks(1).chain(all.chunks(3)).chain([all.as_slice()]) {
            let part = engine.show_jobs(id, |_| some.to_vec()).await.unwrap();
            for &job in some {
                assert_eq!(part.job(job), whole.job(job));
                assert_eq!(part.is_blocked(job), whole.is_blocked(job));
                assert_eq!(part.why_not_running(job), whole.why_not_running(job));
            }
        }
    };
    check().await;
    let taken = take(&engine, 1).await;
    check().await;
    let lease = |name: &str| {
        taken
            .iter()
            .find(|claimed| claimed.job().name == name)
            .unwrap()
            .lease
    };
    succeed(&engine, lease("b"), 2).await.unwrap();
    check().await;
    report(&engine, lease("a"), failure(), 3).await.unwrap();
    check().await;
    succeed(&engine, lease("f"), 4).await.unwrap();
    check().await;
    for claimed in take(&engine, 5).await {
        succeed(&engine, claimed.lease, 6).await.unwrap();
    }
    check().await;
    assert_eq!(engine.workflow_summary(id).await.unwrap().blocked, 3);
}
