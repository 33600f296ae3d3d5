//! Overrides of limits: read once a second, so that all servers of a Redis have the same.

use std::time::{Duration, Instant};

use tidegate_ratelimit::{Limiter, OverrideStore, StoreError};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::edge::clock;
use crate::supervise::Supervisor;

/// The wait between two readings.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest wait for one.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The overrides of a limiter, and where they are kept. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct LimitOverrides {
    pub(crate) store: OverrideStore,
    /// Counts where requests are counted, over connections of the control thread.
    pub(crate) limiter: Limiter,
}

impl LimitOverrides {
    /// Reads what is kept, and gives it to the limiters of all cores.
    ///
    /// # Errors
    /// The store failed. The limiters keep what they have.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let known = self.limiter.overrides();
        let kept = self.limiter.refresh_overrides(&self.store, clock::now(), Instant::now() + TIMEOUT).await?;
        if kept.unreadable() > known.unreadable() {
            warn!(
                unreadable = kept.unreadable(),
                "overrides of limits that a later version wrote have no effect at this server"
            );
        }
        Ok(())
    }

    /// Reads them again and again, until the server drains.
    pub(crate) async fn follow(self, supervisor: Supervisor) {
        let mut ticks = interval(PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = State::Read;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = supervisor.drain.cancelled() => return,
            }
            let reading = self.refresh().await;
            match (&reading, state) {
                (Err(error), State::Read) => warn!(
                    %error,
                    "overrides of limits cannot be read from redis, so those of the last reading stay in force. Its user must be \
                     allowed HGET, HGETALL, HSET, HDEL, HLEN and EVAL for the key that ends with tidegate:overrides"
                ),
                (Ok(()), State::Failing) => info!("overrides of limits can be read again"),
                (Err(_), State::Failing) | (Ok(()), State::Read) => {}
            }
            state = if reading.is_ok() { State::Read } else { State::Failing };
        }
    }
}

/// What became of the last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Read,
    Failing,
}
