//! Two things at the same moment, of which the second was decided on what the first has changed.

use std::time::Duration;

use tidegate_workflow::{
    Action, Definition, EngineError, Paused, Report, Retention, SimulatedStore, StartMode, Store,
};

use crate::support::{at, claim, create, definition, new, redis, server, succeed, success, take};

/// A sweep reads what is to be removed, and somebody extends it before the sweep gets to it.
#[tokio::test]
async fn a_purge_does_not_take_what_was_extended_meanwhile() {
    let check = async |keep: Retention, is_kept: bool| {
        let engine = server(&Store::Simulated(SimulatedStore::new(1))).await;
        let id = create(&engine, "a", StartMode::Now).await;
        succeed(&engine, take(&engine, 1).await.remove(0).lease, 2)
            .await
            .unwrap();
        let soon = Action::Keep(Retention::For(Duration::from_secs(10)));
        engine.act(id, soon, at(2)).await.unwrap();
        // Both wait for the same round: the extension comes first, and the sweep has read the store before it is written.
        let (kept, swept) = tokio::join!(
            engine.act(id, Action::Keep(keep), at(20)),
            engine.sweep(at(20))
        );
        assert!(kept.is_ok() && swept.is_ok(), "{kept:?} {swept:?}");
        let expected = if is_kept {
            Ok(())
        } else {
            Err(EngineError::NoWorkflow { workflow: id })
        };
        assert_eq!(engine.show(id).await.map(|_| ()), expected);
    };
    check(Retention::Forever, true).await;
    check(Retention::For(Duration::from_secs(1)), true).await;
    check(Retention::For(Duration::ZERO), false).await;
}

/// A queue is paused while a worker has a job of it; what its report makes ready stays in the queue.
#[tokio::test]
async fn a_report_hands_nothing_over_from_a_queue_that_was_paused_meanwhile() {
    let engine = server(&Store::Simulated(SimulatedStore::new(1))).await;
    create(&engine, "a b<a", StartMode::Now).await;
    let lease = take(&engine, 1).await.remove(0).lease;
    engine
        .set_queue_paused("default", Paused::Yes)
        .await
        .unwrap();
    let report = Report {
        lease,
        outcome: success("1"),
    };
    let (reported, handed_over) = engine.report(vec![report], Some(&claim(9)), at(2)).await;
    assert!(
        reported[0].is_ok() && handed_over.as_ref().is_ok_and(Vec::is_empty),
        "{reported:?} {handed_over:?}"
    );
    engine
        .set_queue_paused("default", Paused::No)
        .await
        .unwrap();
    assert_eq!(take(&engine, 3).await.len(), 1);
}

/// A workflow is removed at one server while another is asked to create one with its key: it finds the key taken, and then nothing.
#[tokio::test]
async fn a_key_that_becomes_free_meanwhile_is_taken() {
    let (store, _redis) = redis().await;
    let one = server(&store).await;
    let other = server(&store).await;
    let keyed = || {
        new(
            Definition {
                idempotency_key: Some("key".to_owned()),
                ..definition("a")
            },
            StartMode::Later,
        )
    };
    for _ in 0..200 {
        let old = one
            .create(vec![keyed()], at(0))
            .await
            .remove(0)
            .unwrap()
            .workflow;
        let (created, removed) = tokio::join!(
            one.create(vec![keyed()], at(1)),
            other.act(old, Action::Delete, at(1))
        );
        let created = created[0].clone().unwrap();
        assert!(
            removed.is_ok() && created.existing == (created.workflow == old),
            "{removed:?} {created:?}"
        );
        if !created.existing {
            one.act(created.workflow, Action::Delete, at(2))
                .await
                .unwrap();
        }
    }
}
