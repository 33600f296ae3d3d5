//! Reads. Each is one batch, so it costs one round trip for each node.

pub(crate) mod reply;
mod rows;
mod workflows;

use tidegate_pipeline::Batch;

use self::reply::answer;
use super::keys::{Set, WorkflowKey};
use super::{RedisStore, key_arg};
use crate::codec::StoreError;
use crate::model::{Partition, Timestamp, WorkflowId};

/// The kind of key that has a workflow's state, by its id.
pub(super) fn state_of(id: WorkflowId) -> WorkflowKey {
    if id.is_small() {
        WorkflowKey::Small
    } else {
        WorkflowKey::State
    }
}

impl RedisStore {
    /// The clock of the node that has partition 0.
    pub(crate) async fn time(&self) -> Result<Timestamp, StoreError> {
        let key = self.keys.set(Partition(0), Set::Timers);
        let mut batch = Batch::new();
        // The key only selects the node.
        batch
            .unit()
            .repeatable("EXISTS", &[key_arg(&key)])
            .repeatable("TIME", &[]);
        reply::time(answer(&self.send(batch).await[1])?)
    }
}
