//! Policies of queues and handlers (limits and weights): how they are changed, and the copy in
//! memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;

use super::Engine;
use super::error::EngineError;
use crate::codec::policy_row::{Row, limits_row, read, weights_row};
use crate::graph::definition::LimitDefinition;
use crate::graph::policies::{Policies, PolicyTarget, Weight, check_limits, check_weights};
use crate::store::error::StoreError;
use crate::store::register::Looked;
use crate::store::subscription::Broadcast;

/// Maximum number of queues and handlers with limits, and of queues with weights. All of them are
/// read with one call.
const MOST_ROWS: usize = 1_000;
/// Maximum size of all policies, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// The policies that are known here.
#[derive(Debug, Default)]
pub(crate) struct PolicyCache {
    known: Mutex<Known>,
    /// Number of losses of the store after which the policies were written again.
    restored: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    rows: BTreeMap<String, String>,
    terms: Arc<Policies>,
    /// Number of changes made here. A read that began before the latest change is outdated.
    changes: u64,
}

impl PolicyCache {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Returns the policies of all queues and handlers that are known here. Changes of other
    /// servers arrive within a quarter of a second.
    #[must_use]
    pub fn terms(&self) -> Arc<Policies> {
        Arc::clone(&self.core.terms.lock().terms)
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
        subject: &PolicyTarget,
        limits: &[LimitDefinition],
    ) -> Result<(), EngineError> {
        check_limits(subject, limits)?;
        self.set_terms(limits_row(subject, limits)).await
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
        self.set_terms(weights_row(queue, weights)).await
    }

    async fn set_terms(&self, (name, value): Row) -> Result<(), EngineError> {
        if let Some(value) = &value {
            self.check_room(&name, value)?;
        }
        self.store().set_terms(&name, value.as_deref()).await?;
        {
            let mut known = self.core.terms.lock();
            let mut rows = known.rows.clone();
            match value {
                Some(value) => _ = rows.insert(name, value),
                None => _ = rows.remove(&name),
            }
            known.changes += 1;
            self.know(&mut known, rows);
        }
        self.store()
            .call_out(self.server(), Broadcast::Queues)
            .await;
        Ok(())
    }

    fn check_room(&self, name: &str, value: &str) -> Result<(), EngineError> {
        let known = self.core.terms.lock();
        let others = || known.rows.iter().filter(|(other, _)| *other != name);
        let bytes = others()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            + name.len()
            + value.len();
        if others().count() < MOST_ROWS && bytes <= MOST_BYTES {
            Ok(())
        } else {
            Err(EngineError::TooManyTerms {
                most: MOST_ROWS,
                bytes: MOST_BYTES,
            })
        }
    }

    /// Reads the changes of other servers, and writes again the policies that the store has lost.
    pub(in crate::engine) async fn read_terms(
        &self,
        looked: Option<Looked>,
    ) -> Result<(), StoreError> {
        let known = &self.core.terms;
        let changes = known.lock().changes;
        let rows: BTreeMap<String, String> = self.store().terms().await?.into_iter().collect();
        let losses = looked.map_or(0, |looked| looked.losses);
        if known.restored.load(Relaxed) < losses {
            let lost = known.lock().rows.clone();
            if rows.is_empty() && !lost.is_empty() {
                for (name, value) in &lost {
                    self.store().set_terms(name, Some(value)).await?;
                }
                warn!(
                    number = lost.len(),
                    "limits and weights of queues and handlers, which the store had lost, are written again"
                );
                known.restored.store(losses, Relaxed);
                return Ok(());
            }
            known.restored.store(losses, Relaxed);
        }
        let mut known = known.lock();
        if known.changes == changes {
            self.know(&mut known, rows);
        }
        Ok(())
    }

    fn know(&self, known: &mut Known, rows: BTreeMap<String, String>) {
        if rows == known.rows {
            return;
        }
        let terms = read(rows.iter());
        self.queues().set_weights(&terms.weights);
        let numbers_changed = terms.limits != known.terms.limits;
        known.rows = rows;
        known.terms = Arc::new(terms);
        if numbers_changed {
            // A limit on concurrency may have capacity now for jobs that wait.
            self.queues().open_sets();
        }
    }
}
