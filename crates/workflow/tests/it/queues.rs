//! Ready jobs: who gets them, what servers remember of them, and rows that nobody can use.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::change::{Change, CreationRecord, Put, RowChange, TimerMove, Write};
use tidegate_workflow::rows::{ReadyJob, queue_rows};
use tidegate_workflow::{
    Action, CallKind, Claim, Claimed, DataLoss, Engine, EngineError, Fault, JobIndex, JobState,
    NewWorkflow, Outcome, Partition, Report, Retry, RowSet, SimulatedStore, StartMode, Status,
    Store, StoreError, TimeIndex, WorkflowId,
};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::contract::{depth_of_all, due_of_each};
use crate::support::{
    at, claim, create, create_of, definition, failure, names, new, redis, server, simulated,
    succeed, success, take,
};

mod again;
mod crowd;
mod handed;
mod orphans;
mod places;

on_every_store! {
    a_new_job_reaches_a_server_whose_jobs_were_all_taken_elsewhere
    a_worker_that_gives_a_job_back_gets_another
    who_waits_for_others_is_not_woken_by_what_it_gave_back
    a_report_that_is_repeated_gets_the_same_jobs
    a_retry_at_once_waits_behind_the_others_of_its_queue
}

const SOON: Duration = Duration::from_secs(5);

async fn woken(arrival: impl Future<Output = ()>) -> bool {
    timeout(SOON, arrival).await.is_ok()
}

fn queues() -> Vec<String> {
    vec!["default".to_owned()]
}

/// Everything that is ready, a thousand jobs at a time; nothing else is done with them.
async fn drain(engine: &Engine) -> usize {
    let mut drained = 0;
    loop {
        let claimed = engine.claim(&claim(1_000), at(1)).await.unwrap();
        if claimed.is_empty() {
            return drained;
        }
        drained += claimed.len();
    }
}

/// A server tried the jobs that it remembered two at a time, long after others had taken them.
async fn a_new_job_reaches_a_server_whose_jobs_were_all_taken_elsewhere(store: Store) {
    const JOBS: usize = 3_000;
    let jobs: Vec<String> = (0..JOBS).map(|job| format!("j{job}")).collect();
    for others in [0, 1, 3, 7] {
        let first = server(&store).await;
        create(&first, &jobs.join(" "), StartMode::Now).await;
        let mut servers = Vec::new();
        for _ in 0..others {
            servers.push(server(&store).await);
        }
        let mut drained = 0;
        for engine in servers.iter().chain([&first]) {
            drained += drain(engine).await;
        }
        assert_eq!(drained, JOBS);
        let maker = servers.last().unwrap_or(&first);
        let queues = queues();
        let waits = claim(1);
        let arrival = first.arrival(&queues);
        let id = create(maker, "late", StartMode::Now).await;
        first.poll_store().await.unwrap();
        assert!(woken(arrival).await);
        let claimed = first.claim(&waits, at(2)).await.unwrap();
        assert_eq!(
            claimed
                .iter()
                .map(|claimed| claimed.lease.workflow)
                .collect::<Vec<_>>(),
            [id],
            "{others} others"
        );
    }
}

/// The same without a look in between: the claim itself finds out.
#[tokio::test]
async fn a_claim_goes_on_until_the_store_has_no_more() {
    let (store, _) = simulated().await;
    let first = server(&store).await;
    let second = server(&store).await;
    let jobs: Vec<String> = (0..3_000).map(|job| format!("j{job}")).collect();
    create(&first, &jobs.join(" "), StartMode::Now).await;
    assert_eq!(drain(&second).await, 3_000);
    let id = create(&first, "late", StartMode::Now).await;
    let claimed = first.claim(&claim(1), at(2)).await.unwrap();
    assert_eq!(
        claimed
            .iter()
            .map(|claimed| claimed.lease.workflow)
            .collect::<Vec<_>>(),
        [id]
    );
}

fn give_back(claimed: &Claimed) -> Report {
    Report {
        lease: claimed.lease,
        outcome: Outcome::Returned {
            pause: Duration::ZERO,
        },
    }
}

/// It got the same job again in the same call, and no attempt was counted.
async fn a_worker_that_gives_a_job_back_gets_another(store: Store) {
    let engine = server(&store).await;
    let mut urgent = definition("urgent");
    urgent.jobs[0].priority = 9;
    create_of(&engine, urgent, StartMode::Now).await;
    let first = engine.claim(&claim(1), at(1)).await.unwrap().remove(0);
    let (reported, none) = engine
        .report(vec![give_back(&first)], Some(&claim(1)), at(2))
        .await;
    assert_eq!(reported[0].as_ref().unwrap().job, JobState::Ready);
    assert!(
        none.unwrap().is_empty(),
        "the worker does not want this one"
    );
    let again = engine.claim(&claim(1), at(3)).await.unwrap();
    assert_eq!(names(&again), ["urgent"], "its next call may get it");
    create(&engine, "other", StartMode::Now).await;
    let (_, other) = engine
        .report(vec![give_back(&again[0])], Some(&claim(1)), at(4))
        .await;
    assert_eq!(
        names(&other.unwrap()),
        ["other"],
        "although it is less urgent"
    );
    assert_eq!(names(&take(&engine, 5).await), ["urgent"]);
}

async fn who_waits_for_others_is_not_woken_by_what_it_gave_back(store: Store) {
    let engine = server(&store).await;
    create(&engine, "a", StartMode::Now).await;
    let claimed = engine.claim(&claim(1), at(1)).await.unwrap().remove(0);
    let queues = queues();
    let giver = engine.arrival_except(&queues, None, &[claimed.lease]);
    let other = engine.arrival(&queues);
    engine
        .report(vec![give_back(&claimed)], None, at(2))
        .await
        .0
        .remove(0)
        .unwrap();
    assert!(woken(other).await);
    assert!(
        engine
            .claim_except(&claim(1), &[claimed.lease], at(2))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(names(&engine.claim(&claim(1), at(2)).await.unwrap()), ["a"]);
    create(&engine, "b", StartMode::Now).await;
    assert!(woken(giver).await, "another job is work for it");
}

fn leases(claimed: &[Claimed]) -> Vec<String> {
    let mut leases: Vec<String> = claimed
        .iter()
        .map(|claimed| claimed.lease.to_string())
        .collect();
    leases.sort();
    leases
}

/// Jobs that were handed over with an answer that got lost waited for the end of their lease, and the fourth time they failed.
async fn a_report_that_is_repeated_gets_the_same_jobs(store: Store) {
    let first = server(&store).await;
    let second = server(&store).await;
    create(&first, "a b<a c<a d<b", StartMode::Now).await;
    let a = take(&first, 1).await.remove(0);
    let report_a = || {
        vec![Report {
            lease: a.lease,
            outcome: success("1"),
        }]
    };
    let lost = first
        .report(report_a(), Some(&claim(9)), at(2))
        .await
        .1
        .unwrap();
    assert_eq!(names(&lost), ["b", "c"]);
    for engine in [&first, &second] {
        let (reported, again) = engine.report(report_a(), Some(&claim(9)), at(3)).await;
        assert!(reported[0].as_ref().unwrap().already);
        let again = again.unwrap();
        assert_eq!(leases(&again), leases(&lost));
        assert_eq!(
            again
                .iter()
                .map(|claimed| claimed.expires)
                .collect::<Vec<_>>(),
            [lost[0].expires; 2]
        );
        assert_eq!(&again[0].inputs[0].output[..], b"1");
    }
    // What was reported in the meantime is not the worker's any more.
    let b = lost
        .iter()
        .find(|claimed| claimed.job().name == "b")
        .unwrap();
    succeed(&first, b.lease, 4).await.unwrap();
    let (_, rest) = second.report(report_a(), Some(&claim(1)), at(5)).await;
    let rest = rest.unwrap();
    assert_eq!(names(&rest), ["c"], "one at most, as it asks for");
    let with_c = [
        report_a(),
        vec![Report {
            lease: rest[0].lease,
            outcome: success("1"),
        }],
    ]
    .concat();
    let (_, last) = second.report(with_c, Some(&claim(9)), at(6)).await;
    assert!(
        !names(&last.unwrap()).contains(&"c"),
        "it is reported in the same call, and not handed out again"
    );
}

/// It was handed to the worker that reported its failure, again and again, while the others of its queue waited.
async fn a_retry_at_once_waits_behind_the_others_of_its_queue(store: Store) {
    let engine = server(&store).await;
    let mut definition = definition("a b");
    definition.jobs[0].retry = Retry {
        limit: 3,
        backoff: Duration::ZERO,
        ..Retry::default()
    };
    create_of(&engine, definition, StartMode::Now).await;
    let a = engine.claim(&claim(1), at(1)).await.unwrap().remove(0);
    assert_eq!(a.job().name, "a");
    let fails = |lease| {
        vec![Report {
            lease,
            outcome: failure(),
        }]
    };
    let (reported, next) = engine.report(fails(a.lease), Some(&claim(1)), at(2)).await;
    assert_eq!(
        (reported[0].as_ref().unwrap().job, names(&next.unwrap())),
        (JobState::Ready, vec!["b"])
    );
    // Until somebody takes it, the same report gets the same answer.
    assert!(
        engine.report(fails(a.lease), None, at(3)).await.0[0]
            .as_ref()
            .unwrap()
            .already
    );
    let again = engine.claim(&claim(1), at(4)).await.unwrap().remove(0);
    assert_eq!((again.job().name.as_str(), again.attempt), ("a", 2));
    let (_, alone) = engine
        .report(fails(again.lease), Some(&claim(1)), at(5))
        .await;
    assert_eq!(names(&alone.unwrap()), ["a"], "nothing else is ready");
}

/// A worker that waited was told of nothing when the claim of another one failed.
#[tokio::test]
async fn a_job_whose_claim_failed_reaches_another_worker() {
    let store = SimulatedStore::new(1);
    let engine = server(&Store::Simulated(store.clone())).await;
    create(&engine, "a", StartMode::Now).await;
    let mut faults = vec![Fault::Refused];
    store.inject(move |call| {
        if call == CallKind::Read {
            Fault::None
        } else {
            faults.pop().unwrap_or(Fault::None)
        }
    });
    let failed = engine
        .claim(&claim(1), at(1))
        .await
        .map(|claimed| claimed.len());
    assert!(
        matches!(
            failed,
            Err(EngineError::Store(StoreError::Unavailable { .. }))
        ),
        "{failed:?}"
    );
    let queues = queues();
    let arrival = engine.arrival(&queues);
    engine.sweep(at(1)).await.unwrap();
    assert!(woken(arrival).await);
    assert_eq!(engine.claim(&claim(1), at(1)).await.unwrap().len(), 1);
}

/// The claim that a report carries was given up with jobs that had been handed over, and they stayed leased.
#[tokio::test]
async fn jobs_handed_over_are_given_back_when_the_caller_leaves_during_the_claim() {
    let (store, _redis) = redis().await;
    let engine = server(&store).await;
    for turns in 0..8 {
        let mut left = 0;
        for polls in 1.. {
            let id = create(&engine, "a b<a", StartMode::Now).await;
            let a = take(&engine, 1)
                .await
                .into_iter()
                .find(|claimed| claimed.lease.workflow == id)
                .unwrap();
            // A queue that was never read, so that the claim has to wait for the store.
            let wants = Claim {
                queues: vec!["default".to_owned(), format!("other{turns}.{polls}")],
                ..claim(9)
            };
            let call = engine.report(
                vec![Report {
                    lease: a.lease,
                    outcome: success("1"),
                }],
                Some(&wants),
                at(2),
            );
            if leave(call, (polls, turns)).await.is_some() {
                break;
            }
            left += 1;
            // Requests of one workflow are served in their order: these come after the report, and after what is given back.
            for _ in 0..2 {
                engine.act(id, Action::Resume, at(2)).await.unwrap();
            }
            let states = engine.show(id).await.unwrap().states();
            assert_eq!(
                states,
                [JobState::Succeeded, JobState::Ready],
                "after {polls} polls and {turns} turns"
            );
        }
        assert!(
            left > 1,
            "it was left while it reported, and while it claimed"
        );
    }
}

/// Polls a call so often, gives others so many turns, and leaves it unless it is done.
async fn leave<T>(call: impl Future<Output = T>, (polls, turns): (usize, usize)) -> Option<T> {
    let mut call = pin!(call);
    let mut polled = 0;
    let done = poll_fn(|context| {
        polled += 1;
        match call.as_mut().poll(context) {
            Poll::Pending if polled < polls => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
        }
    });
    let done = done.await;
    if done.is_none() {
        for _ in 0..turns {
            yield_now().await;
        }
    }
    done
}
