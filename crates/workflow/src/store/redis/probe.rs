//! A question to one partition: are reads, removals and writes answered? It changes nothing.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::RedisStore;
use super::keys::Set;
use super::reply::answer;
use crate::id::Partition;
use crate::store::error::StoreError;
use crate::store::probe::Probe;

/// How long an answer may take. What is asked costs Redis some microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

impl RedisStore {
    pub(crate) async fn probe(&self, partition: Partition) -> Probe {
        let key = self.keys.set(partition, Set::Expiries);
        let key = Arg::Key(key.as_bytes());
        let (nobody, zero, existing) = (Arg::Bytes(b""), Arg::Integer(0), Arg::Bytes(b"XX"));
        let mut batch = Batch::new();
        // No row is empty, so nothing is removed. With XX nothing is added, and still Redis answers as to any command that adds.
        batch
            .unit()
            .repeatable("EXISTS", &[key])
            .repeatable("ZREM", &[key, nobody])
            .repeatable("ZADD", &[key, existing, zero, nobody]);
        let deadline = Instant::now() + PATIENCE.min(self.timeout);
        let outcomes = self.client.send(batch, deadline).await;
        let of = |at: usize| outcome(&outcomes[at]);
        let enough = self.enough_replicas(partition).await;
        Probe { reads: of(0), removals: of(1).and(enough.clone()), writes: of(2).and(enough) }
    }
}

fn outcome(outcome: &Outcome) -> Result<(), StoreError> {
    answer(outcome).map(drop)
}
