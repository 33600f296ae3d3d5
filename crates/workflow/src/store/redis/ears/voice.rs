//! Whether Redis lets this server tell others things, and how. A connection that fails says nothing about that.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use tidegate_pipeline::{Delivery, Outcome};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use super::RedisStore;
use crate::store::redis::reply;

/// How long to wait before asking a Redis again that did not answer.
const UNANSWERED: Duration = Duration::from_secs(2);
/// How long to wait at least: each write that is not told to others is a reason to ask.
const LEAST: Duration = Duration::from_secs(1);

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    Unknown,
    Works(Delivery),
    /// Redis does not let it.
    Refused,
}

/// What is known of it. The stores of all threads share it.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct Voice {
    known: AtomicU8,
    /// A write was not told.
    doubted: Notify,
}

impl Voice {
    pub(super) fn known(&self) -> Speech {
        match self.known.load(Relaxed) {
            0 => Speech::Unknown,
            1 => Speech::Works(Delivery::Sharded),
            2 => Speech::Works(Delivery::Broadcast),
            _ => Speech::Refused,
        }
    }

    /// How to tell others. None: it is not known how, or not allowed.
    pub(super) fn delivery(&self) -> Option<Delivery> {
        match self.known() {
            Speech::Works(delivery) => Some(delivery),
            Speech::Unknown | Speech::Refused => None,
        }
    }

    fn set(&self, speech: Speech) {
        let word = match speech {
            Speech::Unknown => 0,
            Speech::Works(Delivery::Sharded) => 1,
            Speech::Works(Delivery::Broadcast) => 2,
            Speech::Refused => 3,
        };
        self.known.store(word, Relaxed);
    }

    /// Redis did not tell others of a write.
    pub(in crate::store::redis) fn doubt(&self) {
        self.doubted.notify_one();
    }
}

impl RedisStore {
    /// Finds out how the servers of the store tell each other things: as the first of them found out.
    pub(in crate::store::redis) async fn find_voice(&self) {
        let agreed = self.agreed_delivery(None).await;
        let found = match agreed {
            Some(agreed) => agreed,
            None => match self.publish(Delivery::Sharded, b"").await {
                Outcome::ServerError(error) if error.message.starts_with("ERR unknown command") => {
                    Delivery::Broadcast
                }
                _ => Delivery::Sharded,
            },
        };
        let before = self.voice.known();
        match self.publish(found, b"").await {
            Outcome::Reply(_) => {
                let agreed = self.agreed_delivery(Some(found)).await.unwrap_or(found);
                self.voice.set(Speech::Works(agreed));
                if before == Speech::Refused {
                    info!("redis lets this server tell others about workflows again");
                }
            }
            refused if is_refusal(&refused) => {
                self.voice.set(Speech::Refused);
                if before != Speech::Refused {
                    warn!(
                        reason = reply::reason(&refused),
                        "redis does not let this server tell others about workflows, so each looks for itself four times a second: allow PUBLISH, \
                         SPUBLISH, SUBSCRIBE and SSUBSCRIBE with the channels of its prefix (docs/redis-keys.md)"
                    );
                }
            }
            // What others found out works here as well, until Redis says otherwise.
            _ if before == Speech::Unknown => self
                .voice
                .set(agreed.map_or(Speech::Unknown, Speech::Works)),
            _ => {}
        }
    }

    /// Asks again and again whether this server may tell others things, after waits of `apart`. Returns when it may, or when it may not.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn until_voice(&self, may: bool, apart: &impl Fn() -> Duration) {
        while self.voice.delivery().is_some() != may {
            let wait = if self.voice.known() == Speech::Unknown {
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
