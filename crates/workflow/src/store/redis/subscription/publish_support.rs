//! Whether and by which command Redis lets this server publish messages. A failed connection does
//! not change the answer.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use tidegate_pipeline::{Delivery, Outcome};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use super::RedisStore;
use crate::store::redis::reply;

/// Time until the next probe of a Redis that did not answer.
const UNANSWERED: Duration = Duration::from_secs(2);
/// The shortest time between two probes, because each write that could not be announced requests
/// one.
const LEAST: Duration = Duration::from_secs(1);

/// Whether this server can publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublishStatus {
    Unknown,
    Works(Delivery),
    /// Redis forbids it.
    Refused,
}

/// The publish status. The stores of all threads share it.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct PublishSupport {
    known: AtomicU8,
    /// Notified when a write could not be announced.
    doubted: Notify,
}

impl PublishSupport {
    pub(super) fn known(&self) -> PublishStatus {
        match self.known.load(Relaxed) {
            0 => PublishStatus::Unknown,
            1 => PublishStatus::Works(Delivery::Sharded),
            2 => PublishStatus::Works(Delivery::Broadcast),
            _ => PublishStatus::Refused,
        }
    }

    /// The command for messages. `None` if it is unknown or forbidden.
    pub(super) fn delivery(&self) -> Option<Delivery> {
        match self.known() {
            PublishStatus::Works(delivery) => Some(delivery),
            PublishStatus::Unknown | PublishStatus::Refused => None,
        }
    }

    fn set(&self, speech: PublishStatus) {
        let word = match speech {
            PublishStatus::Unknown => 0,
            PublishStatus::Works(Delivery::Sharded) => 1,
            PublishStatus::Works(Delivery::Broadcast) => 2,
            PublishStatus::Refused => 3,
        };
        self.known.store(word, Relaxed);
    }

    /// Requests a probe, because Redis did not let a write publish its message.
    pub(in crate::store::redis) fn doubt(&self) {
        self.doubted.notify_one();
    }
}

impl RedisStore {
    /// Probes how this server can publish. All servers of a store use the kind of channel that the
    /// first of them found.
    pub(in crate::store::redis) async fn find_voice(&self) {
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
        let before = self.voice.known();
        match self.publish_by(found, b"").await {
            Outcome::Reply(_) => {
                let agreed = self.agreed_delivery(Some(found)).await.unwrap_or(found);
                self.voice.set(PublishStatus::Works(agreed));
                if before == PublishStatus::Refused {
                    info!("redis lets this server publish messages about workflows again");
                }
            }
            refused if is_refusal(&refused) => {
                self.voice.set(PublishStatus::Refused);
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
                .voice
                .set(agreed.map_or(PublishStatus::Unknown, PublishStatus::Works)),
            _ => {}
        }
    }

    /// Probes Redis at intervals of `interval`. Returns when this server may publish messages, if
    /// `allowed` is true, or when it may not, if it is false.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn publish_changed(&self, may: bool, apart: &impl Fn() -> Duration) {
        while self.voice.delivery().is_some() != may {
            let wait = if self.voice.known() == PublishStatus::Unknown {
                UNANSWERED
            } else {
                apart()
            };
            let doubted = async {
                sleep(LEAST).await;
                self.voice.doubted.notified().await;
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = doubted => {}
            }
            self.find_voice().await;
        }
    }
}

fn is_refusal(outcome: &Outcome) -> bool {
    let refusals = ["NOPERM", "ERR unknown command"];
    matches!(outcome, Outcome::ServerError(error) if refusals.iter().any(|code| error.message.starts_with(code)))
}
