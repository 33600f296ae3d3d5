//! Heartbeats of the servers of a store.

use tidegate_pipeline::{Arg, Batch};

use crate::store::HeartbeatReply;
use crate::store::change_notice::ServerId;
use crate::store::error::StoreError;
use crate::store::query::HeartbeatQuery;
use crate::store::redis::RedisStore;
use crate::store::redis::read::reply::{self, answer};

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
        let key = Arg::Key(key.as_bytes());
        let mut batch = Batch::new();
        let mut unit = batch.unit();
        if let Some((server, entry)) = own {
            let field = server.to_string();
            unit = unit.repeatable(
                "HSET",
                &[
                    key,
                    Arg::Bytes(field.as_bytes()),
                    Arg::Bytes(entry.as_bytes()),
                ],
            );
        }
        if !gone.is_empty() {
            let gone: Vec<String> = gone.iter().map(ServerId::to_string).collect();
            let fields = gone.iter().map(|field| Arg::Bytes(field.as_bytes()));
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
}
