//! Stores overrides: in memory, or in the limiter's Redis for all servers that use it.

mod redis;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_pipeline::Client;

use super::{
    EffectKind, LimitOverride, OverrideEffect, OverrideError, OverrideTarget, Overrides, record,
};
use crate::model::Timestamp;
use crate::store::StoreError;
pub use redis::RedisOverrides;

/// Maximum number of overrides, in all and when a worker's report of throttling adds one: operators
/// always have room.
const MAX_OVERRIDES: usize = 1_000;
const MAX_WITH_THROTTLED: usize = 900;
/// Maximum bytes of one stored override.
const MAX_OVERRIDE_BYTES: usize = 1_024;

/// A store of overrides. Clones share one store.
#[derive(Debug, Clone)]
pub enum OverrideStore {
    /// In this process.
    Memory(Arc<Mutex<Vec<LimitOverride>>>),
    /// In Redis, shared by all processes that use it.
    Redis(RedisOverrides),
}

impl OverrideStore {
    /// Creates an empty store in this process.
    #[must_use]
    pub fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// Creates a store in one Redis hash, at the key `tidegate:overrides` after the prefix of
    /// counter keys.
    #[must_use]
    pub fn redis(client: Client, key_prefix: &str) -> Self {
        Self::Redis(RedisOverrides::new(client, key_prefix))
    }

    /// Returns the stored overrides at the time `now`. If they have not changed since `known` was
    /// read, returns `known` after one short read of Redis. Ended overrides are removed.
    ///
    /// # Errors
    /// The store failed.
    ///
    /// # Cancellation
    /// Ended overrides may or may not be removed.
    pub async fn read(
        &self,
        known: &Arc<Overrides>,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Arc<Overrides>, StoreError> {
        match self {
            Self::Memory(stored) => {
                let mut stored = lock(stored);
                stored.retain(|each| !each.has_ended(now));
                Ok(Arc::new(Overrides::new(stored.iter().cloned())))
            }
            Self::Redis(store) => store.read(known, now, deadline).await,
        }
    }

    /// Stores an override, in place of the one of the same kind and target. Of several reports of
    /// throttling, the one with the latest end is stored, in whichever order they arrive.
    ///
    /// # Errors
    /// The override is too long, the store is full, or the store failed.
    ///
    /// # Cancellation
    /// The override may or may not be stored.
    pub async fn put(
        &self,
        new: &LimitOverride,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<(), OverrideError> {
        let field = record::field(&new.target, new.effect.kind());
        let value = record::value(new);
        let bytes = field.len() + value.len();
        if bytes > MAX_OVERRIDE_BYTES {
            return Err(OverrideError::TooLong {
                bytes,
                most: MAX_OVERRIDE_BYTES,
            });
        }
        let most = if new.effect.kind() == EffectKind::Throttled {
            MAX_WITH_THROTTLED
        } else {
            MAX_OVERRIDES
        };
        match self {
            Self::Memory(stored) => put_in_memory(&mut lock(stored), new, now, most),
            Self::Redis(store) => {
                let until = until_if_latest_wins(new);
                let record = redis::OverrideRecord {
                    field: &field,
                    value: &value,
                    until,
                };
                store.put(&record, most, now, deadline).await
            }
        }
    }

    /// Removes an override. Returns whether there was one.
    ///
    /// # Errors
    /// The store failed.
    ///
    /// # Cancellation
    /// The override may or may not be removed.
    pub async fn remove(
        &self,
        target: &OverrideTarget,
        kind: EffectKind,
        deadline: Instant,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Memory(stored) => {
                let mut stored = lock(stored);
                let before = stored.len();
                stored.retain(|each| each.identity() != (target, kind));
                Ok(stored.len() < before)
            }
            Self::Redis(store) => store.remove(&record::field(target, kind), deadline).await,
        }
    }
}

/// Returns the end of an override that an override with a later end outlasts. `None` if it replaces
/// any other.
fn until_if_latest_wins(new: &LimitOverride) -> Option<Timestamp> {
    match new.effect {
        OverrideEffect::Throttled(_) => Some(new.until.unwrap_or(Timestamp(u64::MAX))),
        OverrideEffect::Paused(_) | OverrideEffect::Scaled(_) => None,
    }
}

impl LimitOverride {
    /// Returns whether this override stays if `new`, of the same target and kind, is stored.
    fn outlasts(&self, new: &Self) -> bool {
        until_if_latest_wins(self)
            .zip(until_if_latest_wins(new))
            .is_some_and(|(known, new)| known > new)
    }
}

/// No change under the lock can panic half way, so a poisoned lock is safe to use.
fn lock(overrides: &Mutex<Vec<LimitOverride>>) -> MutexGuard<'_, Vec<LimitOverride>> {
    overrides.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores an override among at most `most`, unless one that lasts longer is there.
fn put_in_memory(
    stored: &mut Vec<LimitOverride>,
    new: &LimitOverride,
    now: Timestamp,
    most: usize,
) -> Result<(), OverrideError> {
    stored.retain(|each| !each.has_ended(now));
    let existing = stored
        .iter()
        .position(|each| each.identity() == new.identity());
    match existing {
        Some(index) if stored[index].outlasts(new) => {}
        Some(index) => stored[index].clone_from(new),
        None if stored.len() >= most => return Err(OverrideError::TooMany { most }),
        None => stored.push(new.clone()),
    }
    Ok(())
}
