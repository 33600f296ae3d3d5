//! Detects that Redis has lost the store that this process opened. A Redis that was emptied, or
//! restarted without its data, answers like an empty store. So the store has a random id, which is
//! verified regularly and after each answer that suggests a loss.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Client};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::StoreFacts;
use crate::codec::StoreError;
use crate::model::Partition;
use crate::store::Verification;
use crate::store::redis::keys::{Keys, MAX_PARTITIONS};
use crate::store::redis::read::reply::{self, answer, unexpected};
use crate::store::redis::registers::REGISTERS;
use crate::store::redis::{RedisStore, key_arg, text_arg};

/// The field of the store's facts that has the id.
const ID_FIELD: &[u8] = b"id";
/// The longest time for which a write waits for the verification. The id may be on a node that does
/// not answer, and other nodes must not wait for it.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// Knowledge of this process about the Redis store that it opened: id, layout and losses.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    facts: StoreFacts,
    /// `None` if the id could not be written yet.
    id: Mutex<Option<String>>,
    /// For each partition, whether its timers have their long row.
    has_long_row: [AtomicBool; MAX_PARTITIONS as usize],
    /// Number of times at which Redis was found to have lost the store's own keys.
    pub(crate) losses: AtomicU64,
    /// For each register, whether all of its names are in its sorted set.
    pub(crate) ordered: [AtomicBool; 2],
    /// Cancelled when another server has created the store anew and this process does not fit it.
    replaced: CancellationToken,
}

impl OpenedStore {
    pub(crate) fn new(facts: StoreFacts, id: Option<String>) -> Self {
        Self {
            facts,
            id: Mutex::new(id),
            has_long_row: [const { AtomicBool::new(false) }; MAX_PARTITIONS as usize],
            losses: AtomicU64::new(0),
            ordered: Default::default(),
            replaced: CancellationToken::new(),
        }
    }

    fn id(&self) -> MutexGuard<'_, Option<String>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the timers of a partition may lack their long row.
    pub(crate) fn lacks_long_row(&self, partition: Partition) -> bool {
        self.has_long_row
            .get(usize::from(partition.0))
            .is_some_and(|has| !has.load(Relaxed))
    }

    /// Records whether the timers of a partition have their long row.
    pub(crate) fn record_long_row(&self, partition: Partition, has: bool) {
        if let Some(known) = self.has_long_row.get(usize::from(partition.0)) {
            known.store(has, Relaxed);
        }
    }

    fn replaced_error(&self, ours: &StoreFacts, found: &StoreFacts) -> StoreError {
        self.replaced.cancel();
        let reason = format!(
            "redis lost the store, and another server made it anew with {found}; this server opened it with {ours}, and opens it again",
        );
        StoreError::unavailable(reason)
    }
}

/// A random id.
fn random_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Reads the id of the store behind `key`, after writing one if there is none. `None` if it cannot
/// be written now.
pub(super) async fn establish(
    client: &Client,
    key: &str,
    deadline: Instant,
) -> Result<Option<String>, StoreError> {
    ensure_id(client, key, &random_id(), deadline).await
}

async fn ensure_id(
    client: &Client,
    key: &str,
    id: &str,
    deadline: Instant,
) -> Result<Option<String>, StoreError> {
    let key = key_arg(key);
    let field = Arg::Bytes(ID_FIELD);
    let mut batch = Batch::new();
    let unit = batch
        .unit()
        .repeatable("HSETNX", &[key, field, text_arg(id)]);
    unit.repeatable("HGET", &[key, field]);
    let outcomes = client.send(batch, deadline).await;
    reply::text(answer(&outcomes[1])?)
}

impl RedisStore {
    /// Number of times at which Redis was found to have lost the store's own keys. After each, the
    /// registers must be written again.
    pub(crate) fn losses(&self) -> u64 {
        self.identity.losses.load(Relaxed)
    }

    /// Whether another server has created the store anew in a way that does not fit this process,
    /// which must open it again.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.identity.replaced.is_cancelled()
    }

    /// Returns when [`RedisStore::is_replaced`] has become true.
    pub(crate) async fn replaced(&self) {
        self.identity.replaced.cancelled().await;
    }

    /// Verifies that Redis still has the store, and writes its facts again if it does not. It takes
    /// one round trip if nothing is missing.
    pub(crate) async fn verify(&self) -> Result<Verification, StoreError> {
        let deadline = Instant::now() + self.timeout;
        let key = Keys::meta(self.keys.prefix());
        let mut batch = Batch::new();
        let [schema, partitions, from] = StoreFacts::FIELDS.map(Arg::Bytes);
        let at = key_arg(&key);
        batch.unit().repeatable(
            "HMGET",
            &[at, Arg::Bytes(ID_FIELD), schema, partitions, from],
        );
        REGISTERS
            .iter()
            .for_each(|&register| self.request_sizes(&mut batch, register));
        let outcomes = self.client.send(batch, deadline).await;
        let values = reply::array(answer(&outcomes[0])?)?;
        let [id, facts @ ..] = &values[..] else {
            return Err(unexpected("four values", answer(&outcomes[0])?));
        };
        let found = reply::text(id)?;
        let known = self.identity.id().clone();
        match known {
            Some(known) if found.as_ref() != Some(&known) => {
                self.on_other_id(&key, found, known, deadline).await?
            }
            Some(_) => self.adopt(StoreFacts::read(facts, &key)?, &key)?,
            // Redis took no writes when the store was opened, so the store had no id.
            None => {
                *self.identity.id() = ensure_id(&self.client, &key, &random_id(), deadline).await?
            }
        }
        let names = self.verify_registers(&outcomes[1..]).await;
        Ok(Verification {
            names,
            losses: self.losses(),
        })
    }

    /// Adopts the format that a migration has set.
    fn adopt(&self, facts: StoreFacts, key: &str) -> Result<(), StoreError> {
        let adopted = facts.adopt(key, &self.schema);
        if matches!(adopted, Err(StoreError::Schema { .. })) {
            // This program does not know the schema. The error is reported when the store is opened
            // again.
            self.identity.replaced.cancel();
        }
        adopted
    }

    /// Handles an id that is missing or differs from the known one.
    async fn on_other_id(
        &self,
        key: &str,
        found: Option<String>,
        known: String,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let identity = &*self.identity;
        let expected = identity.facts.current(&self.schema);
        let facts = expected.create(&self.client, key, deadline).await?;
        if !facts.is_compatible_with(expected) {
            return Err(identity.replaced_error(&expected, &facts));
        }
        // All servers of the store remember the same id. Servers that create the store anew at the
        // same time agree on one.
        let agreed = ensure_id(&self.client, key, &known, deadline).await?;
        identity.losses.fetch_add(1, Relaxed);
        let by = if found.is_some() {
            "another server"
        } else {
            "this server"
        };
        error!(
            key,
            by,
            "redis has lost the store of workflows (FLUSHALL, or a restart without its data): workflows that were in it are gone. Its \
             own keys (partitions, names, pauses of queues) are written again"
        );
        *identity.id() = agreed;
        Ok(())
    }

    /// Verifies the store before an answer is returned that suggests a loss of all data. Workflows
    /// created in an emptied Redis, in partitions that no other server uses, would never be found.
    /// A verification that fails proves nothing.
    ///
    /// # Errors
    /// Another server has created the store anew in a way that does not fit.
    pub(crate) async fn verify_now(&self) -> Result<(), StoreError> {
        let _ = timeout(VERIFY_TIMEOUT, self.verify()).await;
        self.ensure_compatible()
    }

    /// # Errors
    /// Another server has created the store anew in a way that does not fit.
    pub(crate) fn ensure_compatible(&self) -> Result<(), StoreError> {
        if !self.is_replaced() {
            return Ok(());
        }
        Err(StoreError::unavailable(
            "redis lost the store, and another server made it anew: it is opened again",
        ))
    }
}
