//! What only the SQLite store does: the file, who may open it, and what is in it after a crash.

mod crash;
mod holders;
mod space;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;
use tidegate_workflow::change::{Applied, Change, CreationRecord, Put, ResultField, Write};
use tidegate_workflow::{
    JobIndex, Partition, Register, SCHEMA_VERSION, SqliteOptions, SqliteStore, Store, StoreError,
    TimeIndex, Timestamp, WorkflowId,
};

use crate::contract::PARTITIONS;

async fn open() -> (Store, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    (open_at(&file(&directory)).unwrap(), directory)
}

contract!(sqlite, super::open);

fn file(directory: &TempDir) -> PathBuf {
    directory.path().join("workflows.sqlite")
}

fn open_at(path: &Path) -> Result<Store, StoreError> {
    SqliteStore::open(path, &SqliteOptions::new(PARTITIONS).unwrap()).map(Store::Sqlite)
}

fn id(number: u64) -> WorkflowId {
    WorkflowId::new(Timestamp::from_micros(1_000 * number), Partition(0), 0)
}

fn create(id: WorkflowId) -> Change {
    let put = Put {
        meta: b"meta".to_vec(),
        creation: Some(CreationRecord::default()),
        ..Put::default()
    };
    Change {
        workflow: id,
        expected: None,
        small: false,
        write: Write::Put(Box::new(put)),
    }
}

/// Asserts that the store cannot be opened, and what people read then.
fn refused(path: &Path, expected: &str) {
    let error = open_at(path).expect_err("it opened").to_string();
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn a_store_that_is_opened_again_has_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory
        .path()
        .join("made")
        .join("on")
        .join("demand.sqlite");
    let store = open_at(&path).unwrap();
    let Store::Sqlite(sqlite) = &store else {
        unreachable!()
    };
    assert_eq!(
        store.apply(Partition(0), &[create(id(1))]).await,
        Ok(vec![Applied::Done])
    );
    store
        .set_entry(Register::Queues, "mail", Some("paused"))
        .await
        .unwrap();
    sqlite.close().await;
    let left: Vec<_> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().ends_with("-wal")),
        "{left:?}"
    );
    for directory in path.ancestors().skip(1).take(2) {
        assert_eq!(
            fs::metadata(directory).unwrap().mode() & 0o777,
            0o700,
            "{directory:?}"
        );
    }
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    // Another number of partitions is no longer possible.
    let again = Store::Sqlite(SqliteStore::open(&path, &SqliteOptions::new(1).unwrap()).unwrap());
    assert_eq!(again.partitions(), PARTITIONS);
    assert!(again.load(&[id(1)]).await.unwrap()[0].is_some());
    let queues = again.register(Register::Queues).await;
    assert_eq!(queues, Ok(vec![("mail".to_owned(), "paused".to_owned())]));
}

#[tokio::test]
async fn one_server_at_a_time_has_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let first = open_at(&path).unwrap();
    let second = first.clone();
    refused(&path, &format!("in use by process {}", std::process::id()));
    drop(first);
    refused(&path, "set TIDEGATE_DATA_DIR");
    drop(second);
    let third = open_at(&path).unwrap();
    let Store::Sqlite(sqlite) = &third else {
        unreachable!()
    };
    sqlite.close().await;
    sqlite.close().await;
    open_at(&path).unwrap();
}

#[tokio::test]
async fn a_closed_store_is_unavailable() {
    let (store, _directory) = open().await;
    let Store::Sqlite(sqlite) = &store else {
        unreachable!()
    };
    sqlite.close().await;
    let closed = || StoreError::Unavailable {
        reason: "it is closed".to_owned(),
    };
    assert_eq!(
        store.apply(Partition(0), &[create(id(1))]).await,
        Err(closed())
    );
    assert_eq!(store.load(&[id(1)]).await, Err(closed()));
    assert_eq!(store.count(&[], &[Partition(0)]).await, [Err(closed())]);
}

#[tokio::test]
async fn what_waits_is_written_before_the_file_closes() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = open_at(&path).unwrap();
    // On one thread none of the calls sees its answer before the store is closed.
    let calls = (1..=500).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { store.apply(Partition(0), &[create(id(number))]).await })
    });
    let calls: Vec<_> = calls.collect();
    tokio::task::yield_now().await;
    let Store::Sqlite(sqlite) = &store else {
        unreachable!()
    };
    sqlite.close().await;
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(vec![Applied::Done]));
    }
    let ids: Vec<_> = (1..=500).map(id).collect();
    assert!(
        open_at(&path)
            .unwrap()
            .load(&ids)
            .await
            .unwrap()
            .iter()
            .all(Option::is_some)
    );
}

#[test]
fn other_schemas_are_refused_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    drop(open_at(&path).unwrap());
    let advice = "run the version of tidegate that made it, or a later one";
    // A version below zero is what no program has written.
    for (version, found) in [
        (SCHEMA_VERSION as i32 + 1, SCHEMA_VERSION + 1),
        (-1, u32::MAX),
    ] {
        Connection::open(&path)
            .unwrap()
            .pragma_update(None, "user_version", version)
            .unwrap();
        let error = open_at(&path).unwrap_err();
        assert_eq!(error, StoreError::Schema { found, advice });
    }
    Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", SCHEMA_VERSION)
        .unwrap();
    open_at(&path).unwrap();
}

#[test]
fn files_of_other_programs_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("other.sqlite");
    Connection::open(&database)
        .unwrap()
        .execute_batch("CREATE TABLE mine (a); PRAGMA user_version = 1")
        .unwrap();
    let text = directory.path().join("notes.txt");
    fs::write(
        &text,
        "these are notes and no database, and nobody should overwrite them".repeat(20),
    )
    .unwrap();
    for (path, reason) in [
        (database, "a database of another program"),
        (text, "file is not a database"),
    ] {
        let before = fs::read(&path).unwrap();
        refused(&path, reason);
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[tokio::test]
async fn damage_is_found_when_the_store_is_opened_and_when_it_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = open_at(&path).unwrap();
    let changes: Vec<_> = (1..=2_000).map(|number| create(id(number))).collect();
    store.apply(Partition(0), &changes).await.unwrap();
    let Store::Sqlite(sqlite) = &store else {
        unreachable!()
    };
    assert_eq!(sqlite.check().await, Ok(()));
    drop(store);
    // Opened again, as the old one has the page in memory.
    let store = open_at(&path).unwrap();
    let Store::Sqlite(sqlite) = &store else {
        unreachable!()
    };
    let size = fs::metadata(&path).unwrap().len();
    // The last page is one of a tree of workflows.
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&[0x5a; 4_096], size - 4_096)
        .unwrap();
    let damaged = |error: &StoreError| matches!(error, StoreError::Corrupt { what, .. } if *what == path.display().to_string());
    let found = sqlite.check().await.unwrap_err();
    assert!(damaged(&found), "{found}");
    drop(store);
    let found = open_at(&path).unwrap_err();
    assert!(damaged(&found), "{found}");
}

#[test]
fn a_place_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    fs::create_dir(&path).unwrap();
    refused(&path, &path.display().to_string());
    let below_a_file = directory.path().join("plain").join("workflows.sqlite");
    fs::write(directory.path().join("plain"), "").unwrap();
    refused(&below_a_file, &below_a_file.display().to_string());
}

#[test]
fn numbers_of_partitions_are_powers_of_two() {
    for (partitions, allowed) in [
        (0, false),
        (1, true),
        (3, false),
        (64, true),
        (1_024, true),
        (2_048, false),
    ] {
        assert_eq!(
            SqliteOptions::new(partitions).is_ok(),
            allowed,
            "{partitions}"
        );
    }
}

#[tokio::test]
async fn a_file_that_was_removed_or_replaced_takes_no_writes_until_it_is_back() {
    async fn check(suffix: &str, replaced: bool) {
        let (store, directory) = open().await;
        store.apply(Partition(0), &[create(id(1))]).await.unwrap();
        let path = PathBuf::from(format!("{}{suffix}", file(&directory).display()));
        let aside = directory.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        if replaced {
            fs::copy(&aside, &path).unwrap();
        }
        let refused = store.apply(Partition(0), &[create(id(2))]).await;
        let Err(StoreError::Unavailable { reason }) = refused else {
            panic!("{refused:?}")
        };
        assert!(
            reason.contains("removed or replaced") && reason.contains(path.to_str().unwrap()),
            "{reason}"
        );
        let due = store
            .due(
                TimeIndex::Timers,
                Timestamp::from_micros(0),
                1,
                &[Partition(0)],
            )
            .await;
        assert!(
            matches!(due[0], Err(StoreError::Unavailable { .. })),
            "a sweep hears it: {due:?}"
        );
        fs::rename(&aside, &path).unwrap();
        assert_eq!(
            store.apply(Partition(0), &[create(id(2))]).await,
            Ok(vec![Applied::Done])
        );
    }
    check("", false).await;
    check("", true).await;
    check("-wal", false).await;
    check("-wal", true).await;
}

/// A start after the file was moved away made a new store, and SQLite deleted what was acknowledged last.
#[tokio::test]
async fn changes_whose_file_is_missing_are_kept_until_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("workflows.db");
    let (changes, away) = (
        directory.path().join("workflows.db-wal"),
        directory.path().join("away"),
    );
    let store = open_at(&path).unwrap();
    let applied = store.apply(Partition(0), &[create(id(1))]).await;
    assert_eq!(applied, Ok(vec![Applied::Done]));
    // As after kill -9: what was written last is not in the file yet.
    let written = fs::read(&changes).unwrap();
    fs::copy(&path, &away).unwrap();
    drop(store);
    for empty in [false, true] {
        fs::remove_file(&path).unwrap();
        fs::write(&changes, &written).unwrap();
        if empty {
            fs::write(&path, b"").unwrap();
        }
        refused(
            &path,
            "workflows.db-wal has changes of a store whose file is missing",
        );
        assert_eq!(fs::read(&changes).unwrap(), written);
        fs::copy(&away, &path).unwrap();
    }
    let store = open_at(&path).unwrap();
    let again = store.apply(Partition(0), &[create(id(1))]).await.unwrap();
    assert!(!matches!(again[..], [Applied::Done]), "{again:?}");
}

#[tokio::test]
async fn a_backup_beside_a_server_that_writes_has_what_was_acknowledged_before_it() {
    let (store, directory) = open().await;
    for number in 0..300 {
        store
            .apply(Partition(0), &[create(id(number))])
            .await
            .unwrap();
    }
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        for number in 300.. {
            if writer
                .apply(Partition(0), &[create(id(number))])
                .await
                .is_err()
            {
                return;
            }
        }
    });
    let from = file(&directory);
    let to = directory.path().join("copy.sqlite");
    let source = from.clone();
    let target = to.clone();
    let bytes = tokio::task::spawn_blocking(move || SqliteStore::backup(&source, &target))
        .await
        .unwrap()
        .unwrap();
    let Store::Sqlite(sqlite) = &store else {
        unreachable!()
    };
    sqlite.close().await;
    writing.await.unwrap();
    assert_eq!(bytes, fs::metadata(&to).unwrap().len());
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o600);
    let error = SqliteStore::backup(&from, &to)
        .expect_err("it is there already")
        .to_string();
    assert!(
        error.contains("copy.sqlite") && error.contains("exists"),
        "{error}"
    );
    assert!(
        !directory
            .path()
            .read_dir()
            .unwrap()
            .any(|file| file.unwrap().path().extension() == Some("part".as_ref()))
    );
    let copy = open_at(&to).unwrap();
    assert_eq!(copy.partitions(), PARTITIONS);
    let ids: Vec<_> = (0..300).map(id).collect();
    assert!(copy.load(&ids).await.unwrap().iter().all(Option::is_some));
}

#[test]
fn a_backup_that_cannot_be_made_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (other, to) = (
        directory.path().join("other"),
        directory.path().join("copy"),
    );
    let error = SqliteStore::backup(&other, &to)
        .expect_err("there is nothing to copy")
        .to_string();
    assert!(error.contains("other"), "{error}");
    Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE theirs (x)")
        .unwrap();
    let error = SqliteStore::backup(&other, &to)
        .expect_err("it is not a store")
        .to_string();
    assert!(error.contains("another program"), "{error}");
    assert_eq!(directory.path().read_dir().unwrap().count(), 1);
}

/// The bytes that this thread has read from files.
fn bytes_read() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    io.lines()
        .find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
        .unwrap()
}

/// Another connection reads what is kept of a workflow of which nothing large is kept, without a cache.
fn cost_of_a_small_one(path: &Path, id: WorkflowId) -> u64 {
    let reader = Connection::open(path).unwrap();
    reader.pragma_update(None, "cache_size", 0).unwrap();
    let look = |sql: &str| {
        let mut statement = reader.prepare(sql).unwrap();
        let mut rows = statement.query([id.bytes().as_slice()]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let _value: Vec<u8> = row.get(0).unwrap();
        }
    };
    let all = |number: u8| {
        look("SELECT graph FROM graph WHERE id = ?1");
        for field in 0..number {
            look(&format!(
                "SELECT value FROM result WHERE id = ?1 AND field = {field}"
            ));
        }
    };
    // The schema is read once.
    all(1);
    let before = bytes_read();
    all(20);
    bytes_read() - before
}

/// To find a key, whole rows were read: 21 to 44 ms for a job of a few bytes.
#[tokio::test]
async fn large_outputs_of_other_workflows_cost_a_small_one_nothing() {
    let (store, folder) = open().await;
    let small = id(40);
    store.apply(Partition(0), &[create(small)]).await.unwrap();
    let alone = cost_of_a_small_one(&file(&folder), small);
    for number in (1..80).filter(|number| *number != 40) {
        let Change {
            workflow,
            expected,
            write: Write::Put(mut put),
            ..
        } = create(id(number))
        else {
            panic!()
        };
        put.creation.get_or_insert_default().graph = vec![7; 1 << 18];
        put.results = (0..4)
            .map(|job| (ResultField::Output(JobIndex(job)), vec![9; 1 << 18]))
            .collect();
        store
            .apply(
                Partition(0),
                &[Change {
                    workflow,
                    expected,
                    small: false,
                    write: Write::Put(put),
                }],
            )
            .await
            .unwrap();
    }
    let beside = cost_of_a_small_one(&file(&folder), small);
    // A tree is some pages deeper.
    assert!(
        beside < alone + 20 * 3 * 4_096 * 2,
        "{alone} bytes before, {beside} beside 100 MB of others"
    );
}
