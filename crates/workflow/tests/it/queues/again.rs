//! Reports that come again, and leases that are given up or made up.

use std::time::Duration;

use tidegate_workflow::{
    Action, Engine, EngineError, JobState, LeaseRef, Outcome, Refusal, Report, Retry, StartMode,
    Store, WorkflowId, given_back,
};
use tokio::time::timeout;

use super::{give_back, queues, woken};
use crate::support::{
    at, claim, create, create_of, definition, failure, names, report, server, state, succeed,
    success, take,
};

on_every_store! {
    a_repeat_whose_caller_leaves_takes_no_job_from_its_worker
    a_caller_who_leaves_takes_no_job_from_whoever_repeated_the_report
    a_report_that_is_twice_in_a_call_hands_over_once
    only_the_same_report_was_accepted_before
    a_lease_ends_when_its_extension_says
    a_made_up_lease_was_never_given
    a_job_given_back_for_a_while_may_come_back_to_its_worker
}

/// What was asked for before has been done: requests of one workflow are served in their order.
async fn settle(engine: &Engine, id: WorkflowId) {
    for _ in 0..2 {
        engine.act(id, Action::Resume, at(3)).await.unwrap();
    }
}

async fn reason(engine: &Engine, lease: LeaseRef, outcome: Outcome) -> &'static str {
    match report(engine, lease, outcome, 9).await {
        Err(EngineError::Refused(Refusal::LeaseLost { reason, .. })) => reason,
        other => panic!("{other:?}"),
    }
}

/// The job went to another one, and the result of its worker was dropped as if it had come before.
async fn a_repeat_whose_caller_leaves_takes_no_job_from_its_worker(store: Store) {
    let engine = server(&store).await;
    let other = server(&store).await;
    let id = create(&engine, "a b<a", StartMode::Now).await;
    let a = take(&engine, 1).await.remove(0);
    let reports = || {
        vec![Report {
            lease: a.lease,
            outcome: success("1"),
        }]
    };
    let b = engine
        .report(reports(), Some(&claim(1)), at(2))
        .await
        .1
        .unwrap()
        .remove(0);
    for steps in 0..40 {
        let engine = if steps % 2 == 0 { &engine } else { &other };
        let wants = claim(1);
        let call = engine.report(reports(), Some(&wants), at(3));
        let _left = timeout(Duration::from_micros(20 * steps), call).await;
        settle(engine, id).await;
        assert_eq!(
            state(&engine.show(id).await.unwrap(), "b"),
            "running",
            "after {steps} steps"
        );
    }
    let reported = report(&engine, b.lease, success("2"), 4).await.unwrap();
    assert_eq!(
        (reported.job, reported.already),
        (JobState::Succeeded, false)
    );
}

async fn a_caller_who_leaves_takes_no_job_from_whoever_repeated_the_report(store: Store) {
    let engine = server(&store).await;
    let id = create(&engine, "a b<a", StartMode::Now).await;
    let a = take(&engine, 1).await.remove(0);
    let reports = || {
        vec![Report {
            lease: a.lease,
            outcome: success("1"),
        }]
    };
    let wants = claim(1);
    let mut first = Box::pin(engine.report(reports(), Some(&wants), at(2)));
    tokio::select! {
        biased;
        _ = &mut first => panic!("it was to wait"),
        () = std::future::ready(()) => {}
    }
    // It is served after the first, whose caller has not seen the answer yet.
    let again = engine
        .report(reports(), Some(&wants), at(2))
        .await
        .1
        .unwrap();
    assert_eq!(names(&again), ["b"]);
    drop(first);
    settle(&engine, id).await;
    assert_eq!(state(&engine.show(id).await.unwrap(), "b"), "running");
    assert_eq!(
        succeed(&engine, again[0].lease, 4).await,
        Ok(JobState::Succeeded)
    );
}

/// A worker with a pool ran the next job three times at once.
async fn a_report_that_is_twice_in_a_call_hands_over_once(store: Store) {
    let engine = server(&store).await;
    create(&engine, "a b<a", StartMode::Now).await;
    let a = take(&engine, 1).await.remove(0);
    let reports = vec![
        Report {
            lease: a.lease,
            outcome: success("1")
        };
        3
    ];
    for _ in 0..2 {
        let (reported, next) = engine.report(reports.clone(), Some(&claim(9)), at(2)).await;
        assert!(
            reported[1..]
                .iter()
                .all(|reported| reported.as_ref().unwrap().already)
        );
        assert_eq!(names(&next.unwrap()), ["b"]);
    }
    let mut wanted = definition("c");
    wanted.jobs[0].retry = Retry {
        limit: 3,
        backoff: Duration::ZERO,
        ..Retry::default()
    };
    create_of(&engine, wanted, StartMode::Now).await;
    let c = take(&engine, 3).await.remove(0);
    let reports = vec![
        Report {
            lease: c.lease,
            outcome: failure()
        };
        3
    ];
    let next = engine
        .report(reports, Some(&claim(9)), at(4))
        .await
        .1
        .unwrap();
    assert_eq!(
        next.iter().map(|next| next.attempt).collect::<Vec<_>>(),
        [2]
    );
}

/// A success was said to be accepted before when the job had been given back, and it ran again.
async fn only_the_same_report_was_accepted_before(store: Store) {
    let back = || Outcome::Returned {
        pause: Duration::ZERO,
    };
    let all = [success("1"), failure(), back()];
    for (first, same) in [(0, vec![0]), (1, vec![1]), (2, vec![1, 2])] {
        let engine = server(&store).await;
        create(&engine, "a", StartMode::Now).await;
        let lease = take(&engine, 1).await.remove(0).lease;
        report(&engine, lease, all[first].clone(), 2).await.unwrap();
        for (at, outcome) in all.iter().enumerate() {
            if same.contains(&at) {
                assert!(
                    report(&engine, lease, outcome.clone(), 3)
                        .await
                        .unwrap()
                        .already
                )
            } else {
                assert_eq!(
                    reason(&engine, lease, outcome.clone()).await,
                    "reported",
                    "{outcome:?}"
                )
            }
        }
        for ready in take(&engine, 4).await {
            succeed(&engine, ready.lease, 5).await.unwrap();
        }
    }
    let engine = server(&store).await;
    let mut wanted = definition("a");
    wanted.jobs[0].retry = Retry {
        limit: 3,
        backoff: Duration::ZERO,
        ..Retry::default()
    };
    create_of(&engine, wanted, StartMode::Now).await;
    let a = take(&engine, 6).await.remove(0);
    let failed = vec![Report {
        lease: a.lease,
        outcome: failure(),
    }];
    assert_eq!(
        engine
            .report(failed, Some(&claim(1)), at(7))
            .await
            .1
            .unwrap()
            .len(),
        1
    );
    assert_eq!(reason(&engine, a.lease, success("1")).await, "taken_over");
}

/// The answer said when the lease would end, and it ended when the claim had said.
async fn a_lease_ends_when_its_extension_says(store: Store) {
    let engine = server(&store).await;
    let id = create(&engine, "a", StartMode::Now).await;
    let lease = take(&engine, 1).await.remove(0).lease;
    for expires in [at(60), at(6)] {
        assert_eq!(engine.extend(vec![(lease, expires)], at(1)).await, [Ok(())]);
        assert_eq!(
            engine.show(id).await.unwrap().states(),
            [JobState::Running { expires }]
        );
    }
    engine.sweep(at(5)).await.unwrap();
    assert_eq!(state(&engine.show(id).await.unwrap(), "a"), "running");
    server(&store).await.sweep(at(7)).await.unwrap();
    assert_eq!(reason(&engine, lease, success("1")).await, "expired");
    assert_eq!(state(&engine.show(id).await.unwrap(), "a"), "ready");
}

async fn a_made_up_lease_was_never_given(store: Store) {
    let engine = server(&store).await;
    create(&engine, "a", StartMode::Now).await;
    let lease = take(&engine, 1).await.remove(0).lease;
    let made_up = LeaseRef {
        token: lease.token ^ 1,
        ..lease
    };
    assert_eq!(reason(&engine, made_up, success("1")).await, "unknown");
    succeed(&engine, lease, 2).await.unwrap();
    assert_eq!(reason(&engine, made_up, success("1")).await, "unknown");
}

/// The only worker idled beside the job until it had waited long enough for another one.
async fn a_job_given_back_for_a_while_may_come_back_to_its_worker(store: Store) {
    let engine = server(&store).await;
    create(&engine, "a b", StartMode::Now).await;
    let both = take(&engine, 1).await;
    let pause = Duration::from_secs(5);
    let reports = [
        give_back(&both[0]),
        Report {
            lease: both[1].lease,
            outcome: Outcome::Returned { pause },
        },
    ];
    let (_, none) = engine
        .report(reports.to_vec(), Some(&claim(9)), at(2))
        .await;
    assert!(none.unwrap().is_empty());
    let queues = queues();
    let except = given_back(&reports);
    let arrival = engine.arrival_except(&queues, None, &except);
    engine.sweep(at(8)).await.unwrap();
    assert!(woken(arrival).await);
    let claimed = engine
        .claim_except(&claim(9), &except, at(8))
        .await
        .unwrap();
    assert_eq!(names(&claimed), [both[1].job().name.as_str()]);
}
