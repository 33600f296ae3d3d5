//! What only the SQLite store does.

use tempfile::TempDir;
use tidegate_workflow::{SqliteOptions, SqliteStore, Store};

use crate::contract::PARTITIONS;

async fn open() -> (Store, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("workflows.sqlite"), &SqliteOptions::new(PARTITIONS).unwrap());
    (Store::Sqlite(store.unwrap()), directory)
}

contract!(sqlite, super::open);
