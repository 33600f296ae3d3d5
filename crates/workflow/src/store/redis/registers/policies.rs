//! Policies of queues and handlers in Redis: a hash.

use tidegate_pipeline::{Arg, Batch};

use super::super::RedisStore;
use crate::store::error::StoreError;
use crate::store::redis::read::reply::{self, answer};

impl RedisStore {
    pub(crate) async fn policy_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        let key = self.keys.policies();
        let mut batch = Batch::new();
        batch
            .unit()
            .repeatable("HGETALL", &[Arg::Key(key.as_bytes())]);
        reply::entries(answer(&self.send(batch).await[0])?)
    }

    pub(crate) async fn set_policy_row(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        let key = self.keys.policies();
        let mut batch = Batch::new();
        let key = Arg::Key(key.as_bytes());
        let name = Arg::Bytes(name.as_bytes());
        self.wait_for_replicas(match value {
            Some(value) => batch
                .unit()
                .repeatable("HSET", &[key, name, Arg::Bytes(value.as_bytes())]),
            None => batch.unit().repeatable("HDEL", &[key, name]),
        });
        self.send_write(batch).await
    }
}
