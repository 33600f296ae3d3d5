//! Policies of queues and handlers (limits and weights): how they are changed, and the copy in
//! memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;

use super::Engine;
use super::context::error::EngineError;
use crate::codec::{PolicyRow, StoreError, decode_policies, limits_row, weights_row};
use crate::graph::{LimitDefinition, Policies, PolicyTarget, Weight, check_limits, check_weights};
use crate::store::Verification;

/// Maximum number of queues and handlers with limits, and of queues with weights. All of them are
/// read with one call.
const MAX_POLICY_ROWS: usize = 1_000;
/// Maximum size of all policies, in bytes.
const MAX_POLICY_BYTES: usize = 1 << 20;

/// The policies that are known here.
#[derive(Debug, Default)]
pub(crate) struct PolicyCache(Mutex<CachedPolicies>);

#[derive(Debug, Default)]
struct CachedPolicies {
    rows: BTreeMap<String, String>,
    policies: Arc<Policies>,
    /// Number of changes made here. A read that began before the latest change is outdated.
    change_count: u64,
    /// Number of losses of the store after which the policies were written again.
    restored: u64,
}

impl PolicyCache {
    fn lock(&self) -> MutexGuard<'_, CachedPolicies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Returns the policies of all queues and handlers that are known here. Changes of other
    /// servers arrive within a quarter of a second.
    #[must_use]
    pub fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.core.policy_cache.lock().policies)
    }

    /// Sets the limits that jobs of a queue or a handler get before their own, from now on. An
    /// empty list removes them. Workflows that exist keep their limits, but under a limit on
    /// concurrency that they share the lower number holds.
    ///
    /// # Errors
    /// The limits are invalid, the store has no room for them, or it cannot be written.
    ///
    /// # Cancellation
    /// When the future is dropped, the limits may be set all the same. Servers then know of it
    /// within 10 s.
    pub async fn set_limits(
        &self,
        target: &PolicyTarget,
        limits: &[LimitDefinition],
    ) -> Result<(), EngineError> {
        check_limits(target, limits)?;
        self.set_policy_row(limits_row(target, limits)).await
    }

    /// Sets the weights of keys of a queue. An empty list removes them.
    ///
    /// # Errors
    /// The weights are invalid, the store has no room for them, or it cannot be written.
    ///
    /// # Cancellation
    /// When the future is dropped, the weights may be set all the same. Servers then know of it
    /// within 10 s.
    pub async fn set_weights(&self, queue: &str, weights: &[Weight]) -> Result<(), EngineError> {
        check_weights(queue, weights)?;
        self.set_policy_row(weights_row(queue, weights)).await
    }

    async fn set_policy_row(&self, (name, value): PolicyRow) -> Result<(), EngineError> {
        if let Some(value) = &value {
            self.check_capacity(&name, value)?;
        }
        self.store().set_policy_row(&name, value.as_deref()).await?;
        {
            let mut known = self.core.policy_cache.lock();
            let mut rows = known.rows.clone();
            match value {
                Some(value) => _ = rows.insert(name, value),
                None => _ = rows.remove(&name),
            }
            known.change_count += 1;
            self.replace_rows(&mut known, rows);
        }
        self.broadcast_change().await;
        Ok(())
    }

    fn check_capacity(&self, name: &str, value: &str) -> Result<(), EngineError> {
        let known = self.core.policy_cache.lock();
        let others = || known.rows.iter().filter(|(other, _)| *other != name);
        let bytes = others()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            + name.len()
            + value.len();
        if others().count() < MAX_POLICY_ROWS && bytes <= MAX_POLICY_BYTES {
            Ok(())
        } else {
            Err(EngineError::TooManyPolicies {
                most: MAX_POLICY_ROWS,
                bytes: MAX_POLICY_BYTES,
            })
        }
    }

    /// Reads the changes of other servers, and writes again the policies that the store has lost.
    pub(in crate::engine) async fn refresh_policies(
        &self,
        store_state: Option<Verification>,
    ) -> Result<(), StoreError> {
        let known = &self.core.policy_cache;
        let changes = known.lock().change_count;
        let rows: BTreeMap<String, String> =
            self.store().policy_rows().await?.into_iter().collect();
        let losses = store_state.map_or(0, |store_state| store_state.losses);
        if known.lock().restored < losses {
            let lost = known.lock().rows.clone();
            let rewrite = rows.is_empty() && !lost.is_empty();
            if rewrite {
                self.restore_policies(&lost).await?;
            }
            known.lock().restored = losses;
            if rewrite {
                return Ok(());
            }
        }
        let mut known = known.lock();
        if known.change_count == changes {
            self.replace_rows(&mut known, rows);
        }
        Ok(())
    }

    /// Writes policies again that the store has lost.
    async fn restore_policies(&self, lost: &BTreeMap<String, String>) -> Result<(), StoreError> {
        for (name, value) in lost {
            self.store().set_policy_row(name, Some(value)).await?;
        }
        warn!(
            number = lost.len(),
            "limits and weights of queues and handlers, which the store had lost, are written again"
        );
        Ok(())
    }

    fn replace_rows(&self, known: &mut CachedPolicies, rows: BTreeMap<String, String>) {
        if rows == known.rows {
            return;
        }
        let policies = decode_policies(rows.iter());
        self.queues().set_weights(&policies.weights);
        let limits_changed = policies.limits != known.policies.limits;
        known.rows = rows;
        known.policies = Arc::new(policies);
        if limits_changed {
            // A limit on concurrency may have capacity now for jobs that wait.
            self.queues().unblock_concurrency_limits();
        }
    }
}
