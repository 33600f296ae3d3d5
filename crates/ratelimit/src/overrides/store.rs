//! Where overrides are kept: in memory, or in the limiter's Redis for all servers that use it.

mod redis;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_pipeline::Client;

use super::{Effect, EffectKind, LimitOverride, OverrideError, OverrideTarget, Overrides, record};
use crate::request::Timestamp;
use crate::store::StoreError;
pub use redis::RedisOverrides;

/// How many overrides are kept, and how many may be there when a worker's answer adds one: people always have room.
const MOST: usize = 1_000;
const MOST_WITH_THROTTLED: usize = 900;
/// Bytes of one override as it is written.
const MOST_BYTES: usize = 1_024;

/// Keeps overrides. Clones are the same store.
#[derive(Debug, Clone)]
pub enum OverrideStore {
    /// In this process.
    Memory(Arc<Mutex<Vec<LimitOverride>>>),
    /// In Redis, shared by all processes that use it.
    Redis(RedisOverrides),
}

impl OverrideStore {
    /// An empty store in this process.
    #[must_use]
    pub fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// One hash in the Redis of this client, at the key `tidegate:overrides` after the prefix of counter keys.
    #[must_use]
    pub fn redis(client: Client, key_prefix: &str) -> Self {
        Self::Redis(RedisOverrides::new(client, key_prefix))
    }

    /// Returns what is kept at the time `now`. When nothing has changed since `known` was read, this is `known`, and Redis is asked
    /// for a few bytes only. What has ended is removed.
    ///
    /// # Errors
    /// The store failed.
    ///
    /// # Cancellation
    /// When the future is dropped, what has ended may or may not be removed.
    pub async fn read(
        &self,
        known: &Arc<Overrides>,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Arc<Overrides>, StoreError> {
        match self {
            Self::Memory(kept) => {
                let mut kept = lock(kept);
                kept.retain(|each| !each.has_ended(now));
                Ok(Arc::new(Overrides::new(kept.iter().cloned())))
            }
            Self::Redis(store) => store.read(known, now, deadline).await,
        }
    }

    /// Keeps an override, in place of the one of the same kind and target if there is one. Of several reports of throttling, the one with the
    /// latest end is kept, in whichever order they come.
    ///
    /// # Errors
    /// It is too long, there is no room, or the store failed.
    ///
    /// # Cancellation
    /// When the future is dropped, the override may or may not be kept.
    pub async fn put(
        &self,
        new: &LimitOverride,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<(), OverrideError> {
        let field = record::field(&new.target, new.effect.kind());
        let value = record::value(new);
        let bytes = field.len() + value.len();
        if bytes > MOST_BYTES {
            return Err(OverrideError::TooLong {
                bytes,
                most: MOST_BYTES,
            });
        }
        let most = if new.effect.kind() == EffectKind::Throttled {
            MOST_WITH_THROTTLED
        } else {
            MOST
        };
        match self {
            Self::Memory(kept) => {
                let mut kept = lock(kept);
                kept.retain(|each| !each.has_ended(now));
                match kept.iter().position(|each| each.name() == new.name()) {
                    Some(known) if kept[known].outlasts(new) => {}
                    Some(known) => kept[known].clone_from(new),
                    None if kept.len() >= most => return Err(OverrideError::TooMany { most }),
                    None => kept.push(new.clone()),
                }
                Ok(())
            }
            Self::Redis(store) => {
                let until = until_if_latest_wins(new);
                let record = redis::Record {
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
    /// When the future is dropped, the override may or may not be removed.
    pub async fn remove(
        &self,
        target: &OverrideTarget,
        kind: EffectKind,
        deadline: Instant,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Memory(kept) => {
                let mut kept = lock(kept);
                let before = kept.len();
                kept.retain(|each| each.name() != (target, kind));
                Ok(kept.len() < before)
            }
            Self::Redis(store) => store.remove(&record::field(target, kind), deadline).await,
        }
    }
}

/// The end of an override that others of its name may outlast; `None` when it is put in place of any other.
fn until_if_latest_wins(new: &LimitOverride) -> Option<Timestamp> {
    match new.effect {
        Effect::Throttled(_) => Some(new.until.unwrap_or(Timestamp(u64::MAX))),
        Effect::Paused(_) | Effect::Scaled(_) => None,
    }
}

impl LimitOverride {
    /// Whether it stays when `new`, which has its name, is put.
    fn outlasts(&self, new: &Self) -> bool {
        until_if_latest_wins(self)
            .zip(until_if_latest_wins(new))
            .is_some_and(|(known, new)| known > new)
    }
}

/// Nothing is left half done by a panic, so that a poisoned lock can be used.
fn lock(kept: &Mutex<Vec<LimitOverride>>) -> MutexGuard<'_, Vec<LimitOverride>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
