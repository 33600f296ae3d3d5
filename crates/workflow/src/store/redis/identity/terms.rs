//! The terms of queues and handlers in Redis: a hash.

use tidegate_pipeline::{Arg, Batch};

use super::super::RedisStore;
use super::super::reply::{self, answer};
use crate::store::error::StoreError;

impl RedisStore {
    pub(crate) async fn terms(&self) -> Result<Vec<(String, String)>, StoreError> {
        let (key, mut batch) = (self.keys.terms(), Batch::new());
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
        let (key, mut batch) = (self.keys.terms(), Batch::new());
        let (key, name) = (Arg::Key(key.as_bytes()), Arg::Bytes(name.as_bytes()));
        self.wait(match value {
            Some(value) => batch
                .unit()
                .repeatable("HSET", &[key, name, Arg::Bytes(value.as_bytes())]),
            None => batch.unit().repeatable("HDEL", &[key, name]),
        });
        self.write_names(batch).await
    }
}
