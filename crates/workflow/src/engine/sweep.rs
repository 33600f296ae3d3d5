//! Does what is due in workflows, and reads what other servers have changed.

use std::time::Duration;

use super::Engine;
use super::desk::request::Request;
use super::error::EngineError;
use super::queues::Paused;
use crate::store::error::StoreError;
use crate::store::query::{Clockwork, Register};
use crate::time::Timestamp;

/// How far ahead a sweep reads timers. When sweeps follow each other within this time, no timer is late.
pub const HORIZON: Duration = Duration::from_secs(1);
/// How many due workflows of each partition one sweep handles.
const SWEEP: usize = 256;

impl Engine {
    /// Returns when [`Engine::next_due`] has become earlier. Only one task at a time may wait.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub async fn sooner(&self) {
        self.core.context.sooner().await;
    }

    /// The time of the earliest timer: of the workflows that were changed at this server, and of those that the last sweep read within
    /// [`HORIZON`].
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.core.context.next_due()
    }

    /// Does what is due: retries, ends of leases, timeouts, removals. Returns whether more may be due already.
    ///
    /// # Errors
    /// The store cannot be read. What cannot be written stays due.
    pub async fn sweep(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.core.context.expect_nothing();
        self.queues().set_time(now);
        let until = now + HORIZON;
        let (mut timers, mut expiries) = tokio::try_join!(
            self.store().due(Clockwork::Timers, until, SWEEP),
            self.store().due(Clockwork::Expiries, until, SWEEP),
        )?;
        let mut more = false;
        for found in [&mut timers, &mut expiries] {
            let upcoming = found.iter().map(|&(_, at)| at).filter(|&at| at > now).min();
            upcoming.into_iter().for_each(|at| self.core.context.expect_by(at));
            found.retain(|&(_, at)| at <= now);
            more |= found.len() >= SWEEP;
        }
        let ticks = timers.into_iter().map(|(id, _)| (id, Request::Tick));
        let purges = expiries.into_iter().map(|(id, _)| (id, Request::Purge));
        for answer in self.ask_all(ticks.chain(purges).collect(), now).await {
            match answer {
                // Another server did it, or the worker extended its lease.
                Ok(_) | Err(EngineError::NoWorkflow { .. } | EngineError::Refused(_)) => {}
                Err(error) => tracing::warn!(%error, "a workflow that is due was not served"),
            }
        }
        Ok(more)
    }

    /// Reads what other servers have changed: which queues are paused, and ready jobs of the queues that a worker waits for here.
    /// Returns whether any of these jobs was not known.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn look_around(&self) -> Result<bool, StoreError> {
        let known = self.core.names.count();
        let (looked, queues) = tokio::try_join!(self.store().look(), self.store().register(Register::Queues))?;
        for (name, value) in &queues {
            self.queues().set_paused(name, Paused::read(value));
        }
        if let Some((names, losses)) = looked {
            self.restore_names(known, (queues.len(), names), losses).await?;
        }
        let wanted = self.queues().mark_incomplete();
        Ok(!wanted.is_empty() && self.refill(&wanted).await? > 0)
    }
}
