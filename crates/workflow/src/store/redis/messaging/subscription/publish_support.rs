//! Whether and by which command Redis lets this server publish messages. A failed connection does
//! not change the answer.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use tidegate_pipeline::{Delivery, Outcome};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use super::RedisStore;
use crate::store::redis::read::reply;

/// Time until the next probe of a Redis that did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// The shortest time between two probes, because each write that could not be announced requests
/// one.
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Whether this server can publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublishStatus {
    Unknown,
    Works(Delivery),
    /// Redis forbids it.
    Refused,
}

impl PublishStatus {
    /// All states, at the positions that are their codes.
    const ALL: [Self; 4] = [
        Self::Unknown,
        Self::Works(Delivery::Sharded),
        Self::Works(Delivery::Broadcast),
        Self::Refused,
    ];
}

/// The publish status. The stores of all threads share it.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct PublishSupport {
    status: AtomicU8,
    /// Notified when a write could not be announced.
    probe_requested: Notify,
}

impl PublishSupport {
    pub(super) fn status(&self) -> PublishStatus {
        PublishStatus::ALL[usize::from(self.status.load(Relaxed))]
    }

    /// The command for messages. `None` if it is unknown or forbidden.
    pub(super) fn delivery(&self) -> Option<Delivery> {
        match self.status() {
            PublishStatus::Works(delivery) => Some(delivery),
            PublishStatus::Unknown | PublishStatus::Refused => None,
        }
    }

    fn set(&self, status: PublishStatus) {
        let code = PublishStatus::ALL.iter().position(|known| *known == status);
        self.status
            .store(code.expect("all are listed") as u8, Relaxed);
    }

    /// Requests a probe, because Redis did not let a write publish its message.
    pub(in crate::store::redis) fn request_probe(&self) {
        self.probe_requested.notify_one();
    }
}

impl RedisStore {
    /// Probes how this server can publish. All servers of a store use the kind of channel that the
    /// first of them found.
    pub(in crate::store::redis) async fn probe_publish(&self) {
        let agreed = self.agreed_delivery(None).await;
        let found = match agreed {
            Some(agreed) => agreed,
            None => match self.publish_by(Delivery::Sharded, b"").await {
                Outcome::ServerError(error) if error.message.starts_with("ERR unknown command") => {
                    Delivery::Broadcast
                }
                _ => Delivery::Sharded,
            },
        };
        let before = self.publish_support.status();
        match self.publish_by(found, b"").await {
            Outcome::Reply(_) => {
                let agreed = self.agreed_delivery(Some(found)).await.unwrap_or(found);
                self.publish_support.set(PublishStatus::Works(agreed));
                if before == PublishStatus::Refused {
                    info!("redis lets this server publish messages about workflows again");
                }
            }
            refused if is_refusal(&refused) => {
                self.publish_support.set(PublishStatus::Refused);
                if before != PublishStatus::Refused {
                    warn!(
                        reason = reply::reason(&refused),
                        "redis does not let this server publish messages about workflows, so each server polls four times a second: allow PUBLISH, \
                         SPUBLISH, SUBSCRIBE and SSUBSCRIBE with the channels of its prefix (docs/redis-keys.md)"
                    );
                }
            }
            // The agreed kind of channel is used until Redis refuses it.
            _ if before == PublishStatus::Unknown => self
                .publish_support
                .set(agreed.map_or(PublishStatus::Unknown, PublishStatus::Works)),
            _ => {}
        }
    }

    /// Probes Redis at intervals of `interval`. Returns when this server may publish messages, if
    /// `allowed` is true, or when it may not, if it is false.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn publish_changed(&self, allowed: bool, interval: &impl Fn() -> Duration) {
        while self.publish_support.delivery().is_some() != allowed {
            let wait = if self.publish_support.status() == PublishStatus::Unknown {
                RETRY_DELAY
            } else {
                interval()
            };
            let on_request = async {
                sleep(MIN_PROBE_INTERVAL).await;
                self.publish_support.probe_requested.notified().await;
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = on_request => {}
            }
            self.probe_publish().await;
        }
    }
}

fn is_refusal(outcome: &Outcome) -> bool {
    let refusals = ["NOPERM", "ERR unknown command"];
    matches!(outcome, Outcome::ServerError(error) if refusals.iter().any(|code| error.message.starts_with(code)))
}
