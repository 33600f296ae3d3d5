//! Reads metas and the records of some jobs of many workflows, with one round trip to each node.

use tidegate_pipeline::{Arg, Batch};

use super::reply::{self, stored};
use super::state_of;
use crate::codec::change::StoredState;
use crate::model::id::{JobIndex, WorkflowId};
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::redis::keys::META;

impl RedisStore {
    pub(crate) async fn excerpts(
        &self,
        wanted: &[(WorkflowId, Vec<JobIndex>)],
    ) -> Vec<Result<Option<StoredState>, StoreError>> {
        let mut batch = Batch::new();
        let keys: Vec<String> = wanted
            .iter()
            .map(|&(id, _)| self.keys.workflow_key(id, state_of(id)))
            .collect();
        for ((id, jobs), key) in wanted.iter().zip(&keys) {
            let key = Arg::Key(key.as_bytes());
            if id.is_small() {
                batch.unit().repeatable("GET", &[key]);
            } else {
                let fields = jobs.iter().map(|job| Arg::Integer(job.0.into()));
                let args: Vec<Arg<'_>> =
                    [key, Arg::Bytes(META)].into_iter().chain(fields).collect();
                batch.unit().repeatable("HMGET", &args);
            }
        }
        let outcomes = if batch.is_empty() {
            Vec::new()
        } else {
            self.send(batch).await
        };
        let excerpt = |at: usize| {
            let (id, jobs) = &wanted[at];
            let found = stored(&outcomes[at], &keys[at])?;
            if id.is_small() {
                reply::small(found)
            } else {
                reply::excerpt(found, jobs)
            }
        };
        (0..wanted.len()).map(excerpt).collect()
    }
}
