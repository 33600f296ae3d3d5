//! Writes that are acknowledged when replicas have them, so that a failover does not lose them.
//! WAIT covers the writes of its own connection. So such writes have their own connections, and
//! each batch has one for itself: one WAIT after all its writes.

use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Client, Outcome, UnitBuilder};

use super::keys::META;
use super::read::reply::{self, answer, reason};
use super::read::state_of;
use super::{RedisStore, key_arg};
use crate::codec::StoreError;
use crate::model::{Partition, WorkflowId};

/// The longest WAIT. A connection on which nothing arrives for 5 s counts as broken.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The number of replicas that a write waits for, and the client for such writes.
#[derive(Debug, Clone)]
pub(super) struct Replicas {
    number: NonZeroU16,
    client: Client,
}

impl Replicas {
    /// The replicas with own connections, on the current runtime.
    pub(super) fn for_new_thread(&self) -> Self {
        Self {
            number: self.number,
            client: self.client.for_new_thread(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

impl RedisStore {
    /// Makes writes wait until `number` replicas of their node have them. `client` is for these
    /// writes alone, with one batch at a time on each connection.
    #[must_use]
    pub fn acknowledged_by(mut self, number: NonZeroU16, client: Client) -> Self {
        self.replicas = Some(Replicas { number, client });
        self
    }

    /// Number of replicas that must have a write before it is acknowledged.
    pub(crate) fn replicas(&self) -> u16 {
        self.replicas
            .as_ref()
            .map_or(0, |replicas| replicas.number.get())
    }

    /// Adds the wait for replicas to a unit that writes.
    pub(super) fn wait_for_replicas<'u>(&self, unit: UnitBuilder<'u>) -> UnitBuilder<'u> {
        let Some(Replicas { number, .. }) = &self.replicas else {
            return unit;
        };
        // Half of the call's timeout, so that the reply, or its absence, is known before the caller
        // gives up.
        let timeout = i64::try_from((self.timeout / 2).min(MAX_WAIT).as_millis())
            .unwrap_or(i64::MAX)
            .max(1);
        unit.confirmed_by(
            "WAIT",
            &[Arg::Integer(number.get().into()), Arg::Integer(timeout)],
        )
    }

    /// Sends a batch of one unit that [`RedisStore::wait_for_replicas`] completed. Returns the
    /// outcomes of the writes, and whether enough replicas have them.
    pub(super) async fn send_to_replicas(
        &self,
        batch: Batch,
        deadline: Instant,
    ) -> (Vec<Outcome>, Result<(), StoreError>) {
        let Some(Replicas { number, client }) = &self.replicas else {
            return (self.client.send(batch, deadline).await, Ok(()));
        };
        let mut outcomes = client.send(batch, deadline).await;
        let acknowledged = outcomes.pop().expect("the unit ends with the wait");
        let unknown = |reason| Err(StoreError::unknown(reason));
        let replicated = match acknowledged.integer() {
            Ok(found) if found >= i64::from(number.get()) => Ok(()),
            Ok(found) => unknown(format!(
                "{found} of {number} replicas of redis have what was written; it may be lost in a failover"
            )),
            Err(_) => unknown(format!(
                "waiting for replicas of redis: {}",
                reason(&acknowledged)
            )),
        };
        (outcomes, replicated)
    }

    /// Whether workflows still have the given states, and enough replicas have them. Returns true
    /// without a read if writes do not wait for replicas.
    pub(crate) async fn confirm(
        &self,
        partition: Partition,
        states: &[(WorkflowId, Option<Vec<u8>>)],
    ) -> Result<bool, StoreError> {
        if self.replicas.is_none() || states.is_empty() {
            return Ok(true);
        }
        debug_assert!(
            states.iter().all(|(id, _)| id.partition() == partition),
            "all are on one node"
        );
        let mut batch = Batch::new();
        let mut unit = batch.unit();
        for (id, _) in states {
            let key = self.keys.workflow_key(*id, state_of(*id));
            let key = key_arg(&key);
            // The WAIT also covers earlier writes of other connections.
            unit = if id.is_small() {
                unit.repeatable("GET", &[key])
            } else {
                unit.repeatable("HGET", &[key, Arg::Bytes(META)])
            };
        }
        self.wait_for_replicas(unit);
        let (outcomes, replicated) = self
            .send_to_replicas(batch, Instant::now() + self.timeout)
            .await;
        let mut same = true;
        for ((_, state), outcome) in states.iter().zip(&outcomes) {
            let found = reply::bytes(answer(outcome)?)?.map(AsRef::as_ref);
            same &= match (state.as_deref(), found) {
                (Some(state), Some(found)) => found.starts_with(state),
                (state, found) => state == found,
            };
        }
        replicated.map(|()| same)
    }
}
