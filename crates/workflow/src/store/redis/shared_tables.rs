//! Shared tables in Redis: a hash for each.

use tidegate_pipeline::{Arg, Batch};

use super::RedisStore;
use super::reply::{self, answer};
use crate::store::error::StoreError;
use crate::store::shared_table::SharedTable;

/// A day in milliseconds: longer than the replacement of all servers takes. Afterwards nothing is
/// left.
const KEPT: i64 = 86_400_000;

impl RedisStore {
    pub(crate) async fn put_row(
        &self,
        sheet: SharedTable,
        name: &str,
        note: Option<&str>,
    ) -> Result<(), StoreError> {
        let key = self.keys.board(sheet);
        let key = Arg::Key(key.as_bytes());
        let name = Arg::Bytes(name.as_bytes());
        let mut batch = Batch::new();
        match note {
            Some(note) => {
                let unit = batch
                    .unit()
                    .repeatable("HSET", &[key, name, Arg::Bytes(note.as_bytes())]);
                unit.repeatable("PEXPIRE", &[key, Arg::Integer(KEPT)]);
            }
            None => {
                batch.unit().repeatable("HDEL", &[key, name]);
            }
        }
        self.send(batch)
            .await
            .iter()
            .try_for_each(|outcome| answer(outcome).map(drop))
    }

    pub(crate) async fn table_rows(
        &self,
        sheet: SharedTable,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let key = self.keys.board(sheet);
        let mut batch = Batch::new();
        batch
            .unit()
            .repeatable("HGETALL", &[Arg::Key(key.as_bytes())]);
        let outcomes = self.send(batch).await;
        reply::entries(answer(&outcomes[0])?)
    }
}
