//! What a worker gets with a lease, and hears when it is lost.

use super::*;

on_every_store! {
    each_lease_has_a_higher_number
    a_lost_lease_says_why
    a_job_that_runs_after_failures_is_told_of_them
    a_job_is_told_what_is_doomed
    errors_of_many_parents_are_bounded
}

/// What a job gets of the jobs before it: name, state and output, and the message of an error.
fn inputs(claimed: &Claimed) -> Vec<String> {
    let input = |input: &Input| {
        let name = &claimed.graph().jobs[input.job.index()].name;
        let output = str::from_utf8(&input.output).unwrap();
        let error = input.error.as_ref();
        let error = error.map_or(String::new(), |error| format!(", {}", error.message));
        format!("{name} {} {output}{error}", input.state.unwrap())
    };
    claimed.inputs.iter().map(input).collect()
}

async fn each_lease_has_a_higher_number(store: Store) {
    let engine = server(&store).await;
    let mut wanted = definition("a");
    wanted.jobs[0].retry = Retry {
        limit: 1,
        backoff: Duration::ZERO,
        ..Retry::default()
    };
    let id = create_of(&engine, wanted, StartMode::Now).await;
    let first = only(&engine, 1).await;
    report(
        &engine,
        first.lease,
        Outcome::Returned {
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
        let id = create_of(&engine, definition("a"), StartMode::Now).await;
        let lease = only(&engine, 1).await.lease;
        engine.act(id, action, at(2)).await.unwrap();
        assert_eq!(reason(lease).await, word);
    }
    let id = create_of(&engine, definition("a"), StartMode::Now).await;
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
    create_of(&engine, wanted, StartMode::Now).await;
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
    let id = create_of(&engine, wanted, StartMode::Now).await;
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
    let mut expected = [
        "good succeeded [7]",
        "bad failed null, 503 from upstream",
        "stuck blocked null",
        "none running null",
    ];
    assert_eq!(alarm.job().name, "alarm");
    assert_eq!(inputs(&alarm), expected);
    engine
        .act(id, Action::CancelJob("none".to_owned()), at(5))
        .await
        .unwrap();
    let cleanup = only(&server(&store).await, 6).await;
    expected[3] = "none cancelled null";
    assert_eq!(cleanup.job().name, "cleanup");
    assert_eq!(inputs(&cleanup), expected);
}

/// What had not ended, and was doomed, was said to be blocked.
async fn a_job_is_told_what_is_doomed(store: Store) {
    let engine = server(&store).await;
    let jobs = "bad slow join<bad,slow alarm<bad,join";
    create_of(
        &engine,
        with_rule(jobs, "alarm", TriggerRule::AnyFailed),
        StartMode::Now,
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
    create_of(&engine, wanted, StartMode::Now).await;
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
