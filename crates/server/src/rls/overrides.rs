//! Overrides of limits, read once a second, so that all servers of a Redis have the same ones.

use std::time::{Duration, Instant};

use tidegate_pipeline::CommandError;
use tidegate_ratelimit::{Limiter, OverrideStore, StoreError};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use crate::base::clock;

/// Interval of reads.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum of time for a read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum of time that the start waits for the first read.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay between two attempts at the first read.
const FIRST_READ_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The overrides of a limiter, and their store. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct LimitOverrides {
    pub(crate) store: OverrideStore,
    /// The limiter that counts requests, over connections of the control thread.
    pub(crate) limiter: Limiter,
}

impl LimitOverrides {
    /// Reads the stored overrides, and sends them to the limiters of all cores.
    ///
    /// # Errors
    /// The store failed. The limiters keep their overrides.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let previous = self.limiter.overrides();
        let kept = self
            .limiter
            .refresh_overrides(&self.store, clock::now(), Instant::now() + READ_TIMEOUT)
            .await?;
        if kept.unreadable() > previous.unreadable() {
            warn!(
                unreadable = kept.unreadable(),
                "overrides of limits that a later version wrote have no effect at this server"
            );
        }
        Ok(())
    }

    /// Reads the overrides before the ports open, so that paused limits stay paused. Retries for
    /// [`FIRST_READ_TIMEOUT`] at most while Redis does not answer. Then, or if Redis refuses, the
    /// server starts without them: a server that does not start limits nothing at all.
    /// [`Self::follow`] logs the reason, and retries.
    pub(crate) async fn read_first(&self) {
        let started = Instant::now();
        let mut is_failing = false;
        while let Err(error) = self.refresh().await {
            let is_final = matches!(error, StoreError::Redis(CommandError::Server(_)));
            if is_final || started.elapsed() >= FIRST_READ_TIMEOUT {
                return;
            }
            if !is_failing {
                let seconds = FIRST_READ_TIMEOUT.as_secs();
                warn!(%error, "overrides of limits cannot be read; the ports open when they are, or after {seconds} s");
                is_failing = true;
            }
            sleep(FIRST_READ_RETRY_DELAY).await;
        }
    }

    /// Reads the overrides repeatedly.
    pub(crate) async fn follow(self) {
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_failing = false;
        loop {
            ticks.tick().await;
            let reading = self.refresh().await;
            match (&reading, was_failing) {
                (Err(error), false) => warn!(
                    %error,
                    "overrides of limits cannot be read from redis, so those of the last reading stay in force. Its user must be \
                     allowed HGET, HGETALL, HSET, HDEL, HLEN and EVAL for the key that ends with tidegate:overrides"
                ),
                (Ok(()), true) => info!("overrides of limits can be read again"),
                (Err(_), true) | (Ok(()), false) => {}
            }
            was_failing = reading.is_err();
        }
    }
}

#[cfg(test)]
mod with_redis {
    use tidegate_pipeline::Client;
    use tidegate_pipeline::test_util::RedisServer;
    use tidegate_ratelimit::{
        LimitOverride, MemoryBounds, MemoryStore, Options, OverrideEffect, OverrideTarget, Reach,
        Store, Timestamp,
    };

    use super::*;

    fn overrides(client: &Client) -> LimitOverrides {
        let store = Store::Memory(MemoryStore::new(MemoryBounds::default()));
        LimitOverrides {
            store: OverrideStore::redis(client.clone(), ""),
            limiter: Limiter::new(store, Options::default()),
        }
    }

    /// A key that was paused passed for a second after a start, when Redis had no answer at that moment.
    #[tokio::test]
    async fn the_start_waits_for_overrides_that_cannot_be_read_at_once() {
        let mut redis = RedisServer::start_with(&["--appendonly", "yes"]).await;
        let client = Client::new(redis.config()).unwrap();
        let paused = LimitOverride {
            target: OverrideTarget::Rule {
                stats_key: "shop.user".to_owned(),
            },
            effect: OverrideEffect::Paused(Reach::JobsAndRequests),
            until: None,
            by: "ada".to_owned(),
            at: Timestamp(0),
            reason: String::new(),
        };
        let overrides = overrides(&client);
        overrides
            .store
            .put(&paused, Timestamp(0), Instant::now() + READ_TIMEOUT)
            .await
            .unwrap();
        redis.kill();
        let first = async {
            overrides.read_first().await;
            overrides.limiter.overrides().len()
        };
        let back = async {
            while client.stats().connect_failures == 0 {
                tokio::task::yield_now().await;
            }
            redis.restart().await;
        };
        assert_eq!(tokio::join!(first, back).0, 1);
    }

    #[tokio::test]
    async fn the_start_waits_for_no_overrides_that_redis_refuses() {
        let redis = RedisServer::start().await;
        assert_eq!(redis.raw("SET tidegate:overrides x"), "+OK\r\n");
        let started = Instant::now();
        overrides(&Client::new(redis.config()).unwrap())
            .read_first()
            .await;
        assert!(
            started.elapsed() < FIRST_READ_TIMEOUT,
            "it did not try again"
        );
    }
}
