//! Reads metas and the records of some jobs, of many workflows with one round trip to each node.

use tidegate_pipeline::{Arg, Batch};

use super::RedisStore;
use super::keys::{META, Part};
use super::read::state_of;
use super::reply::{self, stored};
use crate::id::{JobIndex, WorkflowId};
use crate::record::change::StoredState;
use crate::store::error::StoreError;

impl RedisStore {
    pub(crate) async fn excerpts(
        &self,
        wanted: &[(WorkflowId, Vec<JobIndex>)],
    ) -> Vec<Result<Option<StoredState>, StoreError>> {
        let ids: Vec<WorkflowId> = wanted.iter().map(|(id, _)| *id).collect();
        let asked: Vec<_> = wanted
            .iter()
            .map(|(id, jobs)| (*id, state_of(*id), &jobs[..]))
            .collect();
        let mut found = self.excerpts_as(&asked).await;
        let again = Self::by_chance(&ids, &found);
        if !again.is_empty() {
            let asked: Vec<_> = again
                .iter()
                .map(|&at| (ids[at], Part::State, &wanted[at].1[..]))
                .collect();
            again
                .into_iter()
                .zip(self.excerpts_as(&asked).await)
                .for_each(|(at, excerpt)| found[at] = excerpt);
        }
        found
    }

    async fn excerpts_as(
        &self,
        asked: &[(WorkflowId, Part, &[JobIndex])],
    ) -> Vec<Result<Option<StoredState>, StoreError>> {
        let mut batch = Batch::new();
        let keys: Vec<String> = asked
            .iter()
            .map(|&(id, part, _)| self.keys.part(id, part))
            .collect();
        for (&(_, part, jobs), key) in asked.iter().zip(&keys) {
            let key = Arg::Key(key.as_bytes());
            if part == Part::Small {
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
            let (_, part, jobs) = asked[at];
            let found = stored(&outcomes[at], &keys[at])?;
            if part == Part::Small {
                reply::small(found)
            } else {
                reply::excerpt(found, jobs)
            }
        };
        (0..asked.len()).map(excerpt).collect()
    }
}
