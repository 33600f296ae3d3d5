//! The size of the file.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tidegate_workflow::change::{Applied, Change, Write};
use tidegate_workflow::{Partition, SqliteOptions, SqliteStore, Store, WorkflowId};

use super::{create, file, id, open_at};

/// Creates so many workflows of 1 kB and removes them, and tells how large the file was in between.
async fn fill_and_empty(store: &SqliteStore, path: &Path, number: u64) -> u64 {
    let all = Store::Sqlite(store.clone());
    let ids: Vec<WorkflowId> = (1..=number).map(id).collect();
    for some in ids.chunks(500) {
        let put = |id| match create(id) {
            Change {
                write: Write::Put(mut put),
                workflow,
                expected,
                small,
            } => {
                put.creation.get_or_insert_default().graph = vec![7; 1_000];
                Change {
                    write: Write::Put(put),
                    workflow,
                    expected,
                    small,
                }
            }
            other => other,
        };
        let changes: Vec<Change> = some.iter().copied().map(put).collect();
        all.apply(Partition(0), &changes).await.unwrap();
    }
    let full = fs::metadata(path).unwrap().len()
        + fs::metadata(path.with_extension("sqlite-wal"))
            .unwrap()
            .len();
    for some in ids.chunks(500) {
        let remove = |&workflow: &WorkflowId| {
            let write = Write::Delete(Box::default());
            Change {
                workflow,
                expected: Some(b"meta".to_vec()),
                small: false,
                write,
            }
        };
        let changes: Vec<Change> = some.iter().map(remove).collect();
        let applied = all.apply(Partition(0), &changes).await.unwrap();
        assert!(applied.iter().all(|applied| *applied == Applied::Done));
    }
    full
}

/// A file never became smaller, whatever was removed.
#[tokio::test]
async fn a_file_becomes_smaller_after_workflows_were_removed_and_writes_go_on_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = SqliteStore::open(&path, &SqliteOptions::default()).unwrap();
    let full = fill_and_empty(&store, &path, 20_000).await;
    assert!(full > 20_000_000, "{full}");
    let all = Store::Sqlite(store.clone());
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut number = 100_000;
    loop {
        let space = store.space().await.unwrap();
        assert!(space.shrinks);
        if fs::metadata(&path).unwrap().len() < full / 8 {
            break;
        }
        assert!(Instant::now() < deadline, "{space:?} of {full}");
        number += 1;
        assert_eq!(
            all.apply(Partition(0), &[create(id(number))]).await,
            Ok(vec![Applied::Done])
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    all.load(&[id(100_001)])
        .await
        .unwrap()
        .remove(0)
        .expect("it was written meanwhile");
    store.check().await.unwrap();
    store.close().await;
    let again = open_at(&path).unwrap();
    assert!(again.load(&[id(100_001)]).await.unwrap()[0].is_some());
}

/// As versions made it that did not give pages back.
fn make_without_giving_back(path: &Path) {
    let made = Connection::open(path).unwrap();
    made.execute_batch(include_str!("../../../../../golden/stores/1-sqlite.sql"))
        .unwrap();
}

#[tokio::test]
async fn an_earlier_file_goes_on_and_becomes_smaller_when_it_is_compacted_or_copied() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let copy = directory.path().join("copy.sqlite");
    make_without_giving_back(&path);
    let store = SqliteStore::open(&path, &SqliteOptions::default()).unwrap();
    let ids = Store::Sqlite(store.clone())
        .scan_states(Partition(0), 0)
        .await
        .unwrap()
        .unwrap()
        .1;
    fill_and_empty(&store, &path, 2_000).await;
    let space = store.space().await.unwrap();
    assert!(!space.shrinks && space.free > 1_000_000, "{space:?}");
    refused_to_compact(&path);
    store.close().await;
    let copied = SqliteStore::backup(&path, &copy).unwrap();
    let (before, after) = SqliteStore::compact(&path).unwrap();
    assert!(
        after < before / 4 && copied < before / 4,
        "{before} to {after}, and {copied}"
    );
    for path in [path, copy] {
        let store = SqliteStore::open(&path, &SqliteOptions::default()).unwrap();
        let space = store.space().await.unwrap();
        assert!(space.shrinks && space.free < 1_000_000, "{space:?}");
        store.check().await.unwrap();
        assert_eq!(
            Store::Sqlite(store)
                .scan_states(Partition(0), 0)
                .await
                .unwrap()
                .unwrap()
                .1,
            ids
        );
    }
}

fn refused_to_compact(path: &Path) {
    let error = SqliteStore::compact(path)
        .expect_err("a server has it open")
        .to_string();
    assert!(error.contains("in use by process"), "{error}");
}
