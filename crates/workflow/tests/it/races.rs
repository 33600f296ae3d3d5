//! Two things at the same moment, of which the second was decided on what the first has changed.

use std::time::Duration;

use tidegate_workflow::{Action, Begin, EngineError, MemoryStore, Retention, Store};

use crate::support::{at, create, server, succeed, take};

/// A sweep reads what is to be removed, and somebody extends it before the sweep gets to it.
#[tokio::test]
async fn a_purge_does_not_take_what_was_extended_meanwhile() {
    let check = async |keep: Retention, is_kept: bool| {
        let engine = server(&Store::Memory(MemoryStore::new(1))).await;
        let id = create(&engine, "a", Begin::Now).await;
        succeed(&engine, take(&engine, 1).await.remove(0).lease, 2).await.unwrap();
        let soon = Action::Keep(Retention::For(Duration::from_secs(10)));
        engine.act(id, soon, at(2)).await.unwrap();
        // Both wait for the same round: the extension comes first, and the sweep has read the store before it is written.
        let (kept, swept) = tokio::join!(engine.act(id, Action::Keep(keep), at(20)), engine.sweep(at(20)));
        assert!(kept.is_ok() && swept.is_ok(), "{kept:?} {swept:?}");
        let expected = if is_kept { Ok(()) } else { Err(EngineError::NoWorkflow { workflow: id }) };
        assert_eq!(engine.show(id).await.map(|_| ()), expected);
    };
    check(Retention::Forever, true).await;
    check(Retention::For(Duration::from_secs(1)), true).await;
    check(Retention::For(Duration::ZERO), false).await;
}
