//! What users rely on when jobs fail, run again or are looked at: the same over every store.

use std::time::Duration;

use tidegate_workflow::{
    Action, Begin, Claimed, Condition, Definition, Engine, EngineError, Failure, Input, JobIndex,
    JobState, Json, LeaseRef, Outcome, Reason, Refusal, Report, RestartScope, Retry, RetryWish,
    Status, Store, TriggerRule, WorkflowId,
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
    a_retry_that_is_sent_twice_is_done_once
    a_retry_is_judged_by_the_state_that_it_changes
    an_action_by_status_leaves_what_has_another_by_now
    a_key_belongs_to_a_definition_however_it_is_spelled
    a_key_belongs_to_a_definition_in_whatever_trace
    each_lease_has_a_higher_number
    a_lost_lease_says_why
    a_job_that_runs_after_failures_is_told_of_them
    a_job_is_told_what_is_doomed
    errors_of_many_parents_are_bounded
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

async fn reason(engine: &Engine, id: WorkflowId, job: u32) -> Option<Reason> {
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
    let id = create_of(&engine, wanted, Begin::Now).await;
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

async fn a_restart_of_what_is_blocked_needs_what_failed(store: Store) {
    let engine = server(&store).await;
    let id = create_of(&engine, definition("bad last<bad"), Begin::Now).await;
    report(&engine, only(&engine, 1).await.lease, failure(), 2)
        .await
        .unwrap();
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
        assert_eq!(
            engine
                .act_if(id, action, as_of(3), at(3))
                .await
                .map(|acted| acted.status),
            without
        );
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
    report(&engine, only(&engine, 5).await.lease, failure(), 5)
        .await
        .unwrap();
    let repeated = engine.act_if(id, both.clone(), as_of(2), at(5)).await;
    assert_eq!(
        repeated.map(|acted| acted.already),
        Ok(true),
        "what failed has failed once more"
    );
    engine.act_if(id, both, as_of(5), at(5)).await.unwrap();
    run(&engine, "bad", "1", 6).await;
    run(&engine, "last", "1", 7).await;
    // Restarted with what comes before it, it is blocked once more.
    let cascade = Action::Restart {
        jobs: vec!["bad".to_owned()],
        scope: RestartScope::AndDescendants,
    };
    engine.act(id, cascade, at(8)).await.unwrap();
    report(&engine, only(&engine, 9).await.lease, failure(), 9)
        .await
        .unwrap();
    let since = engine.act_if(id, restart("last"), as_of(7), at(10)).await;
    assert_eq!(
        since.map(|acted| acted.already),
        Ok(true),
        "it was restarted since"
    );
    assert_eq!(
        engine.act_if(id, restart("last"), as_of(9), at(10)).await,
        Err(refused.unwrap_err())
    );
}

async fn a_job_that_runs_during_a_restart_ends_with_what_it_was_given(store: Store) {
    let engine = server(&store).await;
    let id = create_of(&engine, definition("a b<a c<b"), Begin::Now).await;
    run(&engine, "a", "1", 1).await;
    let b = take(&engine, 2).await.remove(0);
    engine.act(id, restart("a"), at(3)).await.unwrap();
    assert_eq!(state(&engine.show(id).await.unwrap(), "b"), "running");
    assert_eq!(succeed(&engine, b.lease, 4).await, Ok(JobState::Succeeded));
    assert_eq!(names(&take(&engine, 5).await), ["a", "c"]);
}

async fn a_job_that_lost_its_worker_during_a_restart_waits_for_it(store: Store) {
    let engine = server(&store).await;
    let id = create_of(&engine, definition("a b<a"), Begin::Now).await;
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
    let id = create_of(&engine, wanted, Begin::Now).await;
    let both = take(&engine, 1).await;
    report(&engine, one(&both, "bad").lease, failure(), 2)
        .await
        .unwrap();
    assert!(take(&engine, 3).await.is_empty(), "slow is still running");
    let doomed = Reason::Doomed {
        by: vec![JobIndex(0)],
        waits_for: vec![JobIndex(1)],
    };
    assert_eq!(reason(&engine, id, 2).await, Some(doomed));
    assert_eq!(
        reason(&engine, id, 3).await,
        Some(Reason::WaitsFor(vec![JobIndex(2)]))
    );
    succeed(&engine, one(&both, "slow").lease, 4).await.unwrap();
    assert_eq!(
        reason(&engine, id, 2).await,
        Some(Reason::BlockedBy(vec![JobIndex(0)]))
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
    let id = create_of(&engine, wanted, Begin::Now).await;
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
        Begin::Now,
    )
    .await;
    let both = take(&engine, 1).await;
    report(&engine, one(&both, "bad").lease, failure(), 2)
        .await
        .unwrap();
    assert!(
        engine.show(id).await.unwrap().is_doomed(JobIndex(3)),
        "so is what comes after what is doomed"
    );
    engine.act(id, Action::RetryFailed, at(3)).await.unwrap();
    let waits = Reason::WaitsFor(vec![JobIndex(0), JobIndex(1)]);
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

/// The answer to the first was lost; the job failed once more before the second arrives.
async fn a_retry_that_is_sent_twice_is_done_once(store: Store) {
    let (engine, other) = (server(&store).await, server(&store).await);
    let id = create_of(&engine, definition("a b<a c"), Begin::Now).await;
    for (step, action) in [
        (0, Action::RetryFailed),
        (10, Action::RetryJob("a".to_owned())),
        (20, restart("a")),
    ] {
        let a = one(&take(&engine, step).await, "a").lease;
        report(&engine, a, failure(), step + 1).await.unwrap();
        let act = |engine: Engine, seconds| {
            let action = action.clone();
            async move {
                engine
                    .act_if(id, action, as_of(step + 1), at(seconds))
                    .await
                    .map(|acted| acted.already)
            }
        };
        assert_eq!(act(engine.clone(), step + 2).await, Ok(false), "{action:?}");
        assert_eq!(
            act(other.clone(), step + 3).await,
            Ok(true),
            "{action:?}: it is ready"
        );
        let again = one(&take(&other, step + 3).await, "a").lease;
        assert_eq!(
            act(other.clone(), step + 4).await,
            Ok(true),
            "{action:?}: it runs"
        );
        report(&other, again, failure(), step + 5).await.unwrap();
        assert_eq!(
            act(engine.clone(), step + 6).await,
            Ok(true),
            "{action:?}: it failed once more"
        );
        assert_eq!(
            state(&engine.show(id).await.unwrap(), "a"),
            "failed",
            "{action:?}"
        );
        // Who has seen that may do it again.
        engine
            .act_if(id, action.clone(), as_of(step + 5), at(step + 7))
            .await
            .unwrap();
    }
}

/// It was looked at first and done then: a job that had succeeded in between lost its output and ran again.
async fn a_retry_is_judged_by_the_state_that_it_changes(store: Store) {
    let (engine, other) = (server(&store).await, server(&store).await);
    let id = create_of(&engine, definition("a b"), Begin::Now).await;
    let both = take(&engine, 1).await;
    report(&engine, one(&both, "a").lease, failure(), 2)
        .await
        .unwrap();
    // The first server remembers that it failed.
    other
        .act(
            id,
            Action::MarkSucceeded {
                job: "a".to_owned(),
                output: None,
            },
            at(3),
        )
        .await
        .unwrap();
    let retried = engine
        .act(id, Action::RetryJob("a".to_owned()), at(4))
        .await;
    assert!(
        matches!(
            retried,
            Err(EngineError::Refused(Refusal::WrongJobState { .. }))
        ),
        "{retried:?}"
    );
    assert_eq!(state(&engine.show(id).await.unwrap(), "a"), "succeeded");
}

/// An action on all that were pending cancelled one that had been started meanwhile.
async fn an_action_by_status_leaves_what_has_another_by_now(store: Store) {
    let (engine, other) = (server(&store).await, server(&store).await);
    let id = create_of(&engine, definition("a"), Begin::Later).await;
    let pending = Condition {
        statuses: vec![Status::Pending],
        ..Condition::default()
    };
    other.act(id, Action::Start, at(1)).await.unwrap();
    let cancelled = engine.act_if(id, Action::Cancel, pending, at(2)).await;
    assert!(
        matches!(
            cancelled,
            Err(EngineError::Refused(Refusal::WrongStatus { .. }))
        ),
        "{cancelled:?}"
    );
    assert_eq!(
        engine.show(id).await.unwrap().meta().status,
        Status::Running
    );
}

async fn a_key_belongs_to_a_definition_however_it_is_spelled(store: Store) {
    let engine = server(&store).await;
    let create = async |globals: &str, params: &str| {
        let mut wanted = definition("a");
        wanted.idempotency_key = Some("key".to_owned());
        wanted.globals = Some(Json::parse(globals).unwrap());
        wanted.jobs[0].params = Some(Json::parse(params).unwrap());
        engine
            .create(vec![new(wanted, Begin::Now)], at(0))
            .await
            .remove(0)
            .map(|created| created.existing)
    };
    assert_eq!(
        create(r#"{"a":1,"b":2}"#, r#"{"c":[1.50]}"#).await,
        Ok(false)
    );
    assert_eq!(
        create(r#"{"b": 2, "a": 1}"#, r#"{ "c": [15e-1] }"#).await,
        Ok(true)
    );
    let other = create(r#"{"b":2,"a":1}"#, r#"{"c":[1.51]}"#).await;
    assert!(
        matches!(other, Err(EngineError::KeyMismatch { .. })),
        "{other:?}"
    );
}

async fn a_key_belongs_to_a_definition_in_whatever_trace(store: Store) {
    let engine = server(&store).await;
    let create = async |globals: Option<&str>| {
        let mut wanted = definition("a");
        wanted.idempotency_key = Some("key".to_owned());
        wanted.globals = globals.map(|globals| Json::parse(globals).unwrap());
        engine
            .create(vec![new(wanted, Begin::Now)], at(0))
            .await
            .remove(0)
            .map(|created| created.existing)
    };
    assert_eq!(
        create(Some(r#"{"$trace":{"traceparent":"1"}}"#)).await,
        Ok(false)
    );
    for same in [Some(r#"{"$trace":{"traceparent":"2"}}"#), Some("{}"), None] {
        assert_eq!(create(same).await, Ok(true));
    }
    let other = create(Some(r#"{"$trace":{"traceparent":"1"},"a":1}"#)).await;
    assert!(
        matches!(other, Err(EngineError::KeyMismatch { .. })),
        "{other:?}"
    );
}

/// The only job that is ready.
async fn only(engine: &Engine, seconds: u64) -> Claimed {
    let mut claimed = take(engine, seconds).await;
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

async fn each_lease_has_a_higher_number(store: Store) {
    let engine = server(&store).await;
    let mut wanted = definition("a");
    wanted.jobs[0].retry = Retry {
        limit: 1,
        backoff: Duration::ZERO,
        ..Retry::default()
    };
    let id = create_of(&engine, wanted, Begin::Now).await;
    let first = only(&engine, 1).await;
    report(
        &engine,
        first.lease,
        Outcome::GivenBack {
            pause: Duration::ZERO,
        },
        2,
    )
    .await
    .unwrap();
    let second = only(&engine, 3).await;
    engine.sweep(at(60)).await.unwrap();
    let third = only(&engine, 61).await;
    report(&engine, third.lease, failure(), 62).await.unwrap();
    let fourth = only(&server(&store).await, 63).await;
    succeed(&engine, fourth.lease, 64).await.unwrap();
    engine.act(id, restart("a"), at(65)).await.unwrap();
    let fifth = only(&server(&store).await, 66).await;
    let all = [first, second, third, fourth, fifth];
    assert_eq!(
        all.each_ref().map(|claimed| claimed.attempt),
        [1, 1, 1, 2, 1]
    );
    assert_eq!(all.map(|claimed| claimed.fence), [1, 2, 3, 4, 5]);
}

async fn a_lost_lease_says_why(store: Store) {
    let engine = server(&store).await;
    let reason = async |lease: LeaseRef| match succeed(&engine, lease, 500).await {
        Err(EngineError::Refused(Refusal::LeaseLost { reason, .. })) => reason,
        other => panic!("{other:?}"),
    };
    let job = || "a".to_owned();
    for (word, action) in [
        ("cancelled", Action::Cancel),
        ("cancelled", Action::CancelJob(job())),
        (
            "ended_by_hand",
            Action::MarkSucceeded {
                job: job(),
                output: None,
            },
        ),
    ] {
        let id = create_of(&engine, definition("a"), Begin::Now).await;
        let lease = only(&engine, 1).await.lease;
        engine.act(id, action, at(2)).await.unwrap();
        assert_eq!(reason(lease).await, word);
    }
    let id = create_of(&engine, definition("a"), Begin::Now).await;
    let lease = only(&engine, 1).await.lease;
    report(&engine, lease, failure(), 2).await.unwrap();
    engine.act(id, Action::RetryFailed, at(3)).await.unwrap();
    assert_eq!(reason(lease).await, "restarted");
    only(&engine, 4).await;
    assert_eq!(reason(lease).await, "taken_over");
    engine.act(id, Action::Cancel, at(5)).await.unwrap();

    let mut wanted = definition("slow<fails fails");
    wanted.jobs[1].timeout = Some(Duration::from_secs(10));
    wanted.jobs[0].after.clear();
    create_of(&engine, wanted, Begin::Now).await;
    let both = take(&engine, 6).await;
    engine.sweep(at(100)).await.unwrap();
    assert_eq!(reason(one(&both, "fails").lease).await, "timed_out");
    assert_eq!(reason(one(&both, "slow").lease).await, "expired");
    let again = only(&server(&store).await, 101).await;
    assert_eq!(reason(one(&both, "slow").lease).await, "taken_over");
    succeed(&engine, again.lease, 102).await.unwrap();
    assert_eq!(reason(one(&both, "slow").lease).await, "taken_over");
}

async fn a_job_that_runs_after_failures_is_told_of_them(store: Store) {
    let engine = server(&store).await;
    let rules = [
        ("alarm", TriggerRule::AnyFailed),
        ("cleanup", TriggerRule::AllDone),
    ];
    let mut wanted =
        definition("good bad stuck<bad none alarm<good,bad,stuck,none cleanup<good,bad,stuck,none");
    for (name, rule) in rules {
        wanted
            .jobs
            .iter_mut()
            .find(|job| job.name == name)
            .unwrap()
            .rule = rule;
    }
    let id = create_of(&engine, wanted, Begin::Now).await;
    let first = take(&engine, 1).await;
    report(&engine, one(&first, "good").lease, success("[7]"), 2)
        .await
        .unwrap();
    engine
        .act(id, Action::SkipJob("none".to_owned()), at(2))
        .await
        .unwrap_err();
    let failure = Failure {
        kind: "HTTPError".to_owned(),
        message: "503 from upstream".to_owned(),
        trace: None,
    };
    let failed = Outcome::Failed {
        failure,
        retry: RetryWish::ByPolicy,
    };
    report(&engine, one(&first, "bad").lease, failed, 3)
        .await
        .unwrap();
    let alarm = only(&engine, 4).await;
    let told = |claimed: &Claimed| -> Vec<(String, &'static str, String, Option<String>)> {
        let input = |input: &Input| {
            let name = claimed.graph().jobs[input.job.index()].name.clone();
            let output = String::from_utf8(input.output.to_vec()).unwrap();
            (
                name,
                input.state.unwrap(),
                output,
                input.error.as_ref().map(|error| error.message.clone()),
            )
        };
        claimed.inputs.iter().map(input).collect()
    };
    let of = |name: &str, state, output: &str, error: Option<&str>| {
        (
            name.to_owned(),
            state,
            output.to_owned(),
            error.map(str::to_owned),
        )
    };
    let mut expected = vec![
        of("good", "succeeded", "[7]", None),
        of("bad", "failed", "null", Some("503 from upstream")),
        of("stuck", "blocked", "null", None),
        of("none", "running", "null", None),
    ];
    assert_eq!(
        (alarm.job().name.as_str(), told(&alarm)),
        ("alarm", expected.clone())
    );
    engine
        .act(id, Action::CancelJob("none".to_owned()), at(5))
        .await
        .unwrap();
    let cleanup = only(&server(&store).await, 6).await;
    expected[3].1 = "cancelled";
    assert_eq!(
        (cleanup.job().name.as_str(), told(&cleanup)),
        ("cleanup", expected)
    );
}

/// What had not ended, and was doomed, was said to be blocked.
async fn a_job_is_told_what_is_doomed(store: Store) {
    let engine = server(&store).await;
    let jobs = "bad slow join<bad,slow alarm<bad,join";
    create_of(
        &engine,
        with_rule(jobs, "alarm", TriggerRule::AnyFailed),
        Begin::Now,
    )
    .await;
    let first = take(&engine, 1).await;
    report(&engine, one(&first, "bad").lease, failure(), 2)
        .await
        .unwrap();
    let alarm = only(&engine, 3).await;
    assert_eq!(
        alarm
            .inputs
            .iter()
            .map(|input| input.state)
            .collect::<Vec<_>>(),
        [Some("failed"), Some("doomed")]
    );
}

/// Errors are counted before they are read: a join of many that failed holds no more than any other answer.
async fn errors_of_many_parents_are_bounded(store: Store) {
    const PARENTS: usize = 1_100;
    let engine = server(&store).await;
    let names: Vec<String> = (0..PARENTS).map(|at| at.to_string()).collect();
    let wanted = with_rule(
        &format!("{} join<{}", names.join(" "), names.join(",")),
        "join",
        TriggerRule::AllDone,
    );
    create_of(&engine, wanted, Begin::Now).await;
    let mut reports = Vec::new();
    while reports.len() < PARENTS {
        let claimed = take(&engine, 1).await;
        reports.extend(claimed.iter().map(|claimed| Report {
            lease: claimed.lease,
            outcome: failure(),
        }));
    }
    let (reported, _) = engine.report(reports, None, at(2)).await;
    assert!(reported.iter().all(Result::is_ok));
    let join = only(&engine, 3).await;
    assert_eq!(join.inputs.len() + join.omitted.len(), PARENTS);
    assert!(
        (900..PARENTS).contains(&join.inputs.len()),
        "{}",
        join.inputs.len()
    );
    assert!(join.inputs.iter().all(|input| input.error.is_some()));
}

/// Whatever has happened to it: jobs that wait, run, failed, are blocked or doomed.
async fn parts_of_a_workflow_are_as_the_whole(store: Store) {
    let engine = server(&store).await;
    let jobs = "a b c<a,b d<c e<b f g<d,f";
    let id = create(&engine, jobs, Begin::Now).await;
    let check = async || {
        let whole = engine.show(id).await.unwrap();
        let outline = engine.outline(id).await.unwrap();
        assert_eq!(outline.listed.meta, *whole.meta());
        let all: Vec<JobIndex> = (0..whole.jobs().len() as u32).map(JobIndex).collect();
        assert_eq!(
            outline.blocked as usize,
            all.iter().filter(|&&job| whole.is_blocked(job)).count()
        );
        for some in all.chunks(1).chain(all.chunks(3)).chain([all.as_slice()]) {
            let part = engine.show_some(id, |_| some.to_vec()).await.unwrap();
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
    assert_eq!(engine.outline(id).await.unwrap().blocked, 3);
}
