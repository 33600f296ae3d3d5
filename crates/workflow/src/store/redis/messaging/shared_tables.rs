//! Shared tables in Redis: a hash for each.

use tidegate_pipeline::{Arg, Batch};

use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::redis::read::reply::{self, answer};
use crate::store::shared_table::SharedTable;

/// A day in milliseconds: longer than the replacement of all servers takes. Afterwards nothing is
/// left.
const TABLE_TTL_MILLIS: i64 = 86_400_000;

impl RedisStore {
    pub(crate) async fn put_row(
        &self,
        table: SharedTable,
        name: &str,
        row: Option<&str>,
    ) -> Result<(), StoreError> {
        let key = self.keys.shared_table(table);
        let key = Arg::Key(key.as_bytes());
        let name = Arg::Bytes(name.as_bytes());
        let mut batch = Batch::new();
        match row {
            Some(row) => {
                let unit = batch
                    .unit()
                    .repeatable("HSET", &[key, name, Arg::Bytes(row.as_bytes())]);
                unit.repeatable("PEXPIRE", &[key, Arg::Integer(TABLE_TTL_MILLIS)]);
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
        table: SharedTable,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let key = self.keys.shared_table(table);
        let mut batch = Batch::new();
        batch
            .unit()
            .repeatable("HGETALL", &[Arg::Key(key.as_bytes())]);
        let outcomes = self.send(batch).await;
        reply::entries(answer(&outcomes[0])?)
    }
}
