//! A store of the made-up format 0 is migrated: beside a server, after an interruption, against other writers, and twice.

use serde_json::Value;
use tidegate_workflow::change::ResultField;
use tidegate_workflow::{
    Action, Engine, Format, JobIndex, Partition, StartMode, Status, Store, WorkflowId,
};

use super::{
    check_format, check_states, expected, format_of_record, goes_on, ids_in, in_redis, in_sqlite,
    opened, told,
};
use crate::model::check::whole_store;
use crate::support::{at, create, server};

fn format_0() -> Format {
    Format::from_schema(0).unwrap()
}

/// Writes all that is in a store of format 0 in this format.
async fn downgrade(store: &Store) {
    assert_eq!(store.format(), format_0());
    for partition in (0..store.partitions()).map(Partition) {
        let ids = ids_in(store, partition).await;
        let rewritten = store.rewrite(partition, &ids, at(0)).await.unwrap();
        assert_eq!(rewritten.written, ids.len() as u64);
    }
    check_format(store, format_0()).await;
    assert!(!store.is_latest());
}

/// Writes a page of workflows of a partition again that are in an earlier format. Returns how many it wrote, and whether more pages follow.
async fn rewrite_page(store: &Store, partition: Partition) -> (u64, bool) {
    let page = store.outdated_workflows(partition, None).await.unwrap();
    let rewritten = store.rewrite(partition, &page.ids, at(0)).await.unwrap();
    assert_eq!(rewritten.unreadable, []);
    (rewritten.written, page.next.is_some())
}

/// Writes everything of an earlier format again. Returns the number of workflows.
async fn rewrite(store: &Store) -> u64 {
    let mut done = 0;
    for partition in (0..store.partitions()).map(Partition) {
        let (rewritten, has_more) = rewrite_page(store, partition).await;
        assert!(!has_more, "all workflows of a partition are one page");
        done += rewritten;
    }
    done
}

/// All errors of attempts are in the latest format. Returns their number.
async fn check_errors(store: &Store, expected: &Value) -> usize {
    let mut errors = 0;
    for (id, told) in told(expected) {
        let jobs = told["jobs"].as_array().unwrap().len() as u32;
        let fields = (0..jobs)
            .map(JobIndex)
            .flat_map(|job| (0..10).map(move |place| ResultField::Error(job, place)))
            .collect();
        let results = store.results(&[(id, fields)]).await.unwrap().remove(0);
        for error in results.into_iter().flatten() {
            assert_eq!(format_of_record(&error), Format::LATEST);
            errors += 1;
        }
    }
    errors
}

async fn check_migrated(engine: &Engine, expected: &Value) {
    let store = engine.store();
    assert!(store.is_latest());
    check_format(store, Format::LATEST).await;
    assert!(check_errors(store, expected).await > 0);
    check_states(engine, expected).await;
    whole_store(engine).await;
}

async fn act(engine: &Engine, id: WorkflowId, action: Action) {
    engine.act(id, action, at(0)).await.unwrap();
}

/// `store` is what a server has open, and `other` what the command has.
async fn migrates_beside_a_server(store: Store, other: Store, expected: &Value) {
    downgrade(&store).await;
    let engine = server(&store).await;
    check_states(&engine, expected).await;
    let before = create(&engine, "a b<a", StartMode::Now).await;
    let cancelled = create(&engine, "a b<a", StartMode::Now).await;
    check_format(&store, format_0()).await;
    other.begin_migration().await.unwrap();
    // The server has not noticed it yet: it goes on in the format that it knows, and reads both.
    assert!(rewrite(&other).await > 0);
    whole_store(&server(&other).await).await;
    check_states(&engine, expected).await;
    create(&engine, "a b<a", StartMode::Now).await;
    act(&engine, before, Action::Pause).await;
    act(&engine, before, Action::Resume).await;
    act(&engine, cancelled, Action::Cancel).await;
    engine.poll_store().await.unwrap();
    assert_eq!(store.format(), Format::LATEST);
    assert!(store.is_migrating());
    let late = create(&engine, "a b<a", StartMode::Now).await;
    // A file has one server, which is told at once. In Redis it wrote in the earlier format.
    let again = rewrite(&other).await > 0;
    assert_eq!(again, matches!(store, Store::Redis(_)));
    assert_eq!(rewrite(&other).await, 0);
    other.end_migration().await.unwrap();
    engine.poll_store().await.unwrap();
    assert!(other.is_latest());
    check_migrated(&engine, expected).await;
    goes_on(&engine, expected).await;
    for id in [before, late] {
        let status = engine.show(id).await.unwrap().meta().status;
        assert_eq!(status, Status::Succeeded);
    }
    check_format(&store, Format::LATEST).await;
    whole_store(&engine).await;
}

#[tokio::test]
async fn a_store_in_redis_is_migrated_beside_a_server() {
    let (store, redis) = in_redis(0).await;
    let other = opened(&redis).await;
    migrates_beside_a_server(store, other, &expected("redis")).await;
}

/// Only one process has a file open.
#[tokio::test]
async fn a_store_in_sqlite_is_migrated_beside_a_server() {
    let (store, _folder) = in_sqlite(0);
    migrates_beside_a_server(store.clone(), store, &expected("sqlite")).await;
}

/// Ends a migration that was begun, and migrates again, which changes nothing.
async fn ends_and_repeats(store: &Store, expected: &Value) {
    store.begin_migration().await.unwrap();
    assert_eq!(store.format(), Format::LATEST);
    assert!(rewrite(store).await > 0, "some were left");
    store.end_migration().await.unwrap();
    check_migrated(&server(store).await, expected).await;
    store.begin_migration().await.unwrap();
    assert!(store.is_migrating() && !store.is_latest());
    assert_eq!(rewrite(store).await, 0);
    store.end_migration().await.unwrap();
    check_migrated(&server(store).await, expected).await;
}

/// Begins a migration, and stops after one partition.
async fn begin_and_stop(store: &Store) {
    downgrade(store).await;
    store.begin_migration().await.unwrap();
    let mut partitions = (0..store.partitions()).map(Partition);
    while rewrite_page(store, partitions.next().unwrap()).await.0 == 0 {}
}

#[tokio::test]
async fn a_migration_that_was_stopped_goes_on_in_redis() {
    let (store, redis) = in_redis(0).await;
    begin_and_stop(&store).await;
    drop(store);
    let again = opened(&redis).await;
    assert!(again.is_migrating());
    ends_and_repeats(&again, &expected("redis")).await;
}

#[tokio::test]
async fn a_migration_that_was_stopped_goes_on_in_sqlite() {
    let (store, folder) = in_sqlite(0);
    begin_and_stop(&store).await;
    let Store::Sqlite(sqlite) = store else {
        unreachable!("it is a file")
    };
    sqlite.close().await;
    let again = super::open_sqlite(folder.path());
    assert!(again.is_migrating());
    ends_and_repeats(&again, &expected("sqlite")).await;
}

/// Pauses and resumes workflows until they are migrated. Returns how often.
async fn disturb(engine: &Engine, ids: &[WorkflowId], store: &Store) -> usize {
    let mut times = 0;
    while store.is_migrating() {
        for &id in ids {
            for action in [Action::Pause, Action::Resume] {
                act(engine, id, action).await;
                times += 1;
            }
        }
    }
    times
}

/// Two commands migrate at the same time, while a server changes the workflows. `store` is what the server has open.
async fn migrates_against_others(store: Store, commands: [Store; 2], expected: &Value) {
    downgrade(&store).await;
    let engine = server(&store).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(create(&engine, "a b<a", StartMode::Now).await);
    }
    let [first, second] = &commands;
    first.begin_migration().await.unwrap();
    second.begin_migration().await.unwrap();
    let migrate = async || {
        for _ in 0..20 {
            let _ = tokio::join!(rewrite(first), rewrite(second));
            engine.poll_store().await.unwrap();
        }
        first.end_migration().await.unwrap();
        second.end_migration().await.unwrap();
    };
    let disturbed = tokio::join!(disturb(&engine, &ids, first), migrate()).0;
    assert!(disturbed > ids.len(), "{disturbed}");
    assert_eq!(rewrite(first).await, 0);
    engine.poll_store().await.unwrap();
    check_migrated(&engine, expected).await;
}

#[tokio::test]
async fn other_writers_do_not_stop_a_migration_in_redis() {
    let (store, redis) = in_redis(0).await;
    let commands = [opened(&redis).await, opened(&redis).await];
    migrates_against_others(store, commands, &expected("redis")).await;
}

#[tokio::test]
async fn other_writers_do_not_stop_a_migration_in_sqlite() {
    let (store, _folder) = in_sqlite(0);
    let commands = [store.clone(), store.clone()];
    migrates_against_others(store, commands, &expected("sqlite")).await;
}
