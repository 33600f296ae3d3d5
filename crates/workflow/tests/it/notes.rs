//! What workers say of their jobs: who may, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tidegate_workflow::{
    Action, CallKind, Engine, EngineError, Fault, JobIndex, LeaseRef, Note, Partition, Refusal,
    SimulatedStore, StartMode, Store, WorkflowId,
};

use crate::support::{at, create, failure, report, server, succeed, take};

on_every_store! {
    whoever_has_the_lease_may_say_how_far_it_is
    a_lost_lease_says_nothing_more
    attempts_are_told_apart
    notes_go_with_their_workflow
}

mod shared {
    use super::a_lease_is_known_to_all_servers;

    on_every_shared_store! {
        a_lease_is_known_to_all_servers
    }
}

fn note(lease: LeaseRef, percent: u8, line: &str) -> Note {
    Note {
        lease,
        progress: Some((percent, format!("{percent} of 100"))),
        lines: vec![line.to_owned()],
    }
}

async fn say(engine: &Engine, lease: LeaseRef, percent: u8, line: &str) -> Result<(), EngineError> {
    engine
        .add_notes(vec![note(lease, percent, line)], at(1))
        .await
        .remove(0)
}

/// Percent and attempt, and the lines with theirs.
async fn said(
    engine: &Engine,
    id: WorkflowId,
    job: &str,
) -> (Option<(u8, u16)>, Vec<(u16, String)>) {
    let index = engine.show(id).await.unwrap().graph().find(job).unwrap();
    let result = engine.results(id, &[index]).await.unwrap().remove(0);
    let log = engine.log(id, job).await.unwrap();
    let progress = result
        .progress
        .map(|progress| (progress.percent, progress.attempt));
    (
        progress,
        log.lines
            .into_iter()
            .map(|line| (line.attempt, line.text))
            .collect(),
    )
}

fn reason(refused: Result<(), EngineError>) -> &'static str {
    match refused {
        Err(EngineError::Refused(Refusal::LeaseLost { reason, .. })) => reason,
        other => panic!("{other:?}"),
    }
}

/// Few jobs, and many: their states are stored in different ways.
const JOBS: [&str; 2] = ["a b", "a b c d e f g h i j"];

async fn whoever_has_the_lease_may_say_how_far_it_is(store: Store) {
    let engine = server(&store).await;
    for jobs in JOBS {
        let id = create(&engine, jobs, StartMode::Now).await;
        let claimed = take(&engine, 0).await;
        let a = claimed[0].lease;
        let b = claimed[1].lease;
        let wrong = LeaseRef {
            token: a.token ^ 1,
            ..a
        };
        let nobody = LeaseRef {
            job: JobIndex(4_000_000_000),
            ..a
        };
        let nowhere = LeaseRef {
            workflow: WorkflowId::new(at(0), Partition(1_000), 1),
            ..a
        };
        let unknown = LeaseRef {
            workflow: WorkflowId::new(at(0), Partition(0), 1),
            ..a
        };
        let leases = [a, wrong, b, nobody, nowhere, unknown, a];
        let notes = (0..)
            .zip(leases)
            .map(|(number, lease)| note(lease, number, &number.to_string()));
        let noted = engine.add_notes(notes.collect(), at(1)).await;
        let kept: Vec<bool> = noted.iter().map(Result::is_ok).collect();
        assert_eq!(
            kept,
            [true, false, true, false, false, false, true],
            "{noted:?}"
        );
        for (place, LeaseRef { workflow, .. }) in [(4, nowhere), (5, unknown)] {
            assert_eq!(noted[place], Err(EngineError::NoWorkflow { workflow }));
        }
        for (place, job) in [(1, &claimed[0].job().name), (3, &"4000000000".to_owned())] {
            let Err(EngineError::Refused(Refusal::LeaseLost { job: named, .. })) = &noted[place]
            else {
                panic!()
            };
            assert_eq!(named, job);
        }
        let line = |text: &str| (1, text.to_owned());
        let first = said(&engine, id, &claimed[0].job().name).await;
        assert_eq!(first, (Some((6, 1)), vec![line("0"), line("6")]));
        let second = said(&engine, id, &claimed[1].job().name).await;
        assert_eq!(second, (Some((2, 1)), vec![line("2")]));
        let workflow = id;
        let job = "nobody".to_owned();
        let none = engine.log(id, "nobody").await;
        assert_eq!(none, Err(EngineError::NoJob { workflow, job }));
        // Nothing else has changed: reports of all leases are taken.
        for claimed in claimed {
            succeed(&engine, claimed.lease, 2).await.unwrap();
        }
    }
}

async fn a_lost_lease_says_nothing_more(store: Store) {
    let engine = server(&store).await;
    for jobs in JOBS {
        let id = create(&engine, jobs, StartMode::Now).await;
        let claimed = take(&engine, 0).await;
        let a = &claimed[0];
        let b = &claimed[1];
        succeed(&engine, a.lease, 1).await.unwrap();
        assert_eq!(
            reason(say(&engine, a.lease, 1, "after its report").await),
            "reported"
        );
        engine
            .act(id, Action::CancelJob(b.job().name.clone()), at(1))
            .await
            .unwrap();
        assert_eq!(
            reason(say(&engine, b.lease, 1, "after it was cancelled").await),
            "cancelled"
        );
        for job in [a, b] {
            assert_eq!(said(&engine, id, &job.job().name).await, (None, Vec::new()));
        }
    }
}

async fn attempts_are_told_apart(store: Store) {
    let engine = server(&store).await;
    let mut definition = crate::support::definition("a");
    definition.jobs[0].retry.limit = 1;
    let id = crate::support::create_of(&engine, definition, StartMode::Now).await;
    let first = take(&engine, 0).await.remove(0);
    say(&engine, first.lease, 90, "first").await.unwrap();
    report(&engine, first.lease, failure(), 1).await.unwrap();
    assert_eq!(
        said(&engine, id, "a").await,
        (Some((90, 1)), vec![(1, "first".to_owned())])
    );
    engine.sweep(at(3_600)).await.unwrap();
    let second = take(&engine, 3_600).await.remove(0);
    assert_eq!(
        reason(say(&engine, first.lease, 91, "late").await),
        "taken_over"
    );
    say(&engine, second.lease, 10, "second").await.unwrap();
    let lines = vec![(1, "first".to_owned()), (2, "second".to_owned())];
    assert_eq!(said(&engine, id, "a").await, (Some((10, 2)), lines));
}

async fn notes_go_with_their_workflow(store: Store) {
    let engine = server(&store).await;
    let id = create(&engine, "a", StartMode::Now).await;
    let claimed = take(&engine, 0).await.remove(0);
    say(&engine, claimed.lease, 1, "a").await.unwrap();
    succeed(&engine, claimed.lease, 1).await.unwrap();
    engine.act(id, Action::Delete, at(2)).await.unwrap();
    assert_eq!(
        engine.log(id, "a").await,
        Err(EngineError::NoWorkflow { workflow: id })
    );
    assert_eq!(
        say(&engine, claimed.lease, 2, "late").await,
        Err(EngineError::NoWorkflow { workflow: id })
    );
    assert_eq!(store.log(id, JobIndex(0)).await.unwrap().lines, []);
    assert_eq!(store.progress(id, JobIndex(0)).await, Ok(None));
}

async fn a_lease_is_known_to_all_servers(store: Store) {
    let here = server(&store).await;
    let there = server(&store).await;
    for jobs in JOBS {
        let id = create(&here, jobs, StartMode::Now).await;
        // Both have it in memory.
        let claimed = take(&there, 0).await;
        assert!(here.show(id).await.is_ok());
        let a = &claimed[0];
        let b = &claimed[1];
        say(&here, a.lease, 1, "here").await.unwrap();
        say(&there, a.lease, 2, "there").await.unwrap();
        let lines = vec![(1, "here".to_owned()), (1, "there".to_owned())];
        assert_eq!(said(&here, id, &a.job().name).await, (Some((2, 1)), lines));
        succeed(&here, b.lease, 1).await.unwrap();
        assert_eq!(reason(say(&there, b.lease, 1, "late").await), "reported");
        there.act(id, Action::Cancel, at(1)).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_fails_loses_notes_and_nothing_else() {
    let store = SimulatedStore::new(4);
    let engine = server(&Store::Simulated(store.clone())).await;
    let id = create(&engine, "a", StartMode::Now).await;
    let lease = take(&engine, 0).await.remove(0).lease;
    for failing in [CallKind::Write, CallKind::Read] {
        let fails = Arc::new(AtomicBool::new(true));
        let injected = Arc::clone(&fails);
        store.inject(move |call| {
            if call == failing && injected.load(SeqCst) {
                Fault::Refused
            } else {
                Fault::None
            }
        });
        let refused = say(&engine, lease, 1, "lost").await;
        assert!(matches!(refused, Err(EngineError::Store(_))), "{refused:?}");
        fails.store(false, SeqCst);
    }
    succeed(&engine, lease, 1).await.unwrap();
    assert_eq!(said(&engine, id, "a").await, (None, Vec::new()));
}

#[tokio::test]
async fn jobs_without_notes_cost_no_call() {
    let store = SimulatedStore::new(4);
    let engine = server(&Store::Simulated(store.clone())).await;
    let before = store.calls();
    assert_eq!(engine.add_notes(Vec::new(), at(0)).await, []);
    assert_eq!(store.calls(), before);
    create(&engine, "a b c", StartMode::Now).await;
    let leases: Vec<LeaseRef> = take(&engine, 0)
        .await
        .iter()
        .map(|claimed| claimed.lease)
        .collect();
    let before = store.calls();
    let noted = engine
        .add_notes(
            leases
                .into_iter()
                .map(|lease| note(lease, 1, "a"))
                .collect(),
            at(1),
        )
        .await;
    assert!(noted.iter().all(Result::is_ok));
    assert_eq!(
        store.calls() - before,
        2,
        "one for the leases, one for the notes"
    );
}
