//! Policies of queues and handlers in Redis: a hash.

use tidegate_pipeline::{Arg, Batch};

use super::super::RedisStore;
use super::super::reply::{self, answer};
use crate::store::error::StoreError;

impl RedisStore {
    pub(crate) async fn terms(&self) -> Result<Vec<(String, String)>, StoreError> {
        let key = self.keys.terms();
        let mut batch = Batch::new();
        batch
            .unit()
            .repeatable("HGETALL", &[Arg::Key(key.as_bytes())]);
        reply::entries(answer(&self.send(batch).await[0])?)
    }

    pub(crate) async fn set_terms(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        let key = self.keys.terms();
        let mut batch = Batch::new();
        let key = Arg::Key(key.as_bytes());
        let name = Arg::Bytes(name.as_bytes());
        self.wait(match value {
            Some(value) => batch
                .unit()
                .repeatable("HSET", &[key, name, Arg::Bytes(value.as_bytes())]),
            None => batch.unit().repeatable("HDEL", &[key, name]),
        });
        self.write_names(batch).await
    }
}
