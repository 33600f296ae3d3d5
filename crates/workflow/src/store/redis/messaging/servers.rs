//! Heartbeats of the servers of a store, and the tables that they share: a hash for each.

use tidegate_pipeline::{Arg, Batch};

use crate::codec::StoreError;
use crate::store::redis::read::reply::{self, answer};
use crate::store::redis::{RedisStore, key_arg, text_arg};
use crate::store::{HeartbeatQuery, HeartbeatReply, ServerId, SharedTable};

/// A day in milliseconds: longer than the replacement of all servers takes. Afterwards nothing of a
/// shared table is left.
const TABLE_TTL_MILLIS: i64 = 86_400_000;

impl RedisStore {
    /// Writes the record of a server if there is one, removes the records of `gone`, and reads all
    /// records. One round trip.
    pub(crate) async fn heartbeat(
        &self,
        own: Option<(ServerId, &str)>,
        gone: &[ServerId],
        query: HeartbeatQuery,
    ) -> Result<HeartbeatReply, StoreError> {
        let [key, _] = self.keys.servers();
        let key = key_arg(&key);
        let mut batch = Batch::new();
        let mut unit = batch.unit();
        if let Some((server, entry)) = own {
            let field = server.to_string();
            unit = unit.repeatable("HSET", &[key, text_arg(&field), text_arg(entry)]);
        }
        if !gone.is_empty() {
            let gone: Vec<String> = gone.iter().map(ServerId::to_string).collect();
            let fields = gone.iter().map(|field| text_arg(field));
            unit = unit.repeatable("HDEL", &[key].into_iter().chain(fields).collect::<Vec<_>>());
        }
        unit = unit.repeatable("HGETALL", &[key]);
        if query == HeartbeatQuery::StoreTime {
            unit.repeatable("TIME", &[]);
        }
        let outcomes = self.send(batch).await;
        let at = usize::from(own.is_some()) + usize::from(!gone.is_empty());
        // A Redis that takes no writes is reported by the calls that need them.
        let is_new = own.is_some() && outcomes[0].integer().is_ok_and(|added| added > 0);
        let time = outcomes
            .get(at + 1)
            .and_then(|time| answer(time).and_then(reply::time).ok());
        Ok(HeartbeatReply {
            entries: reply::entries(answer(&outcomes[at])?)?,
            time,
            is_new,
        })
    }

    pub(crate) async fn put_row(
        &self,
        table: SharedTable,
        name: &str,
        row: Option<&str>,
    ) -> Result<(), StoreError> {
        let key = self.keys.shared_table(table);
        let key = key_arg(&key);
        let name = text_arg(name);
        let mut batch = Batch::new();
        match row {
            Some(row) => {
                let unit = batch.unit().repeatable("HSET", &[key, name, text_arg(row)]);
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
        let found = self.command("HGETALL", &[key_arg(&key)]).await;
        reply::entries(answer(&found)?)
    }
}
