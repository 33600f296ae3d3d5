//! Does what is due in workflows, and reads what other servers have changed.

pub(crate) mod gone;

use std::time::Duration;

use hashbrown::HashSet;

use super::Engine;
use super::desk::request::Request;
use super::error::EngineError;
use super::queues::Paused;
use crate::id::WorkflowId;
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
        // Those whose claim failed are tried again. If that fails, the next sweep does it.
        let _later = self.refill(&self.queues().failed()).await;
        // What is passed over does not take the place of others.
        let most = SWEEP + self.queues().number_aside();
        let (mut timers, mut expiries) = tokio::try_join!(
            self.store().due(Clockwork::Timers, until, most),
            self.store().due(Clockwork::Expiries, until, most),
        )?;
        let mut more = false;
        for found in [&mut timers, &mut expiries] {
            let upcoming = found.iter().map(|&(_, at)| at).filter(|&at| at > now).min();
            upcoming.into_iter().for_each(|at| self.core.context.expect_by(at));
            more |= found.iter().filter(|&&(_, at)| at <= now).count() >= most;
            found.retain(|&(id, at)| at <= now && !self.queues().is_aside(id));
        }
        self.bury_known([&mut timers, &mut expiries]).await;
        let ticks = timers.into_iter().map(|(id, _)| (id, Request::Tick));
        let purges = expiries.into_iter().map(|(id, _)| (id, Request::Purge));
        let requests: Vec<_> = ticks.chain(purges).collect();
        let ids: Vec<WorkflowId> = requests.iter().map(|(id, _)| *id).collect();
        let mut absent = HashSet::new();
        for (id, answer) in ids.into_iter().zip(self.ask_all(requests, now).await) {
            match answer {
                // Another server did it, or the worker extended its lease.
                Ok(_) | Err(EngineError::Refused(_)) => {}
                Err(EngineError::NoWorkflow { .. }) => _ = absent.insert(id),
                Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => self.queues().pass_over(id, &error),
                Err(error) => tracing::warn!(%error, "a workflow that is due was not served"),
            }
        }
        self.core.context.gone.note(absent);
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
