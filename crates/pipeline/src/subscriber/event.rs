//! Events of a subscriber.

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

/// An event of a [`Subscriber`](crate::Subscriber).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriberEvent {
    /// Messages of the channel arrive from now on. Earlier ones may have been missed. Sent at the
    /// first subscription, and again after each interruption.
    Subscribed {
        /// The channel.
        channel: Bytes,
    },
    /// Messages of the channel do not arrive. The subscription is tried again until it works.
    Unsubscribed {
        /// The channel.
        channel: Bytes,
        /// The reason, without secrets.
        reason: Arc<str>,
    },
    /// The server refuses this subscription. It is tried again twice a minute, in case the server
    /// is upgraded or the user gets the permission. This event comes once.
    Refused {
        /// The channel.
        channel: Bytes,
        /// The reason.
        refusal: Refusal,
    },
    /// A message.
    Message {
        /// The channel.
        channel: Bytes,
        /// The published bytes.
        payload: Bytes,
    },
    /// The reader was too slow: messages of any channel were dropped since the last such event.
    Missed {
        /// Number of dropped messages.
        messages: u64,
    },
}

/// Reason why a server does not accept a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The server does not know the command: SSUBSCRIBE came with Redis 7.
    #[error("the server does not know the command: {message}")]
    Unsupported {
        /// The text as Redis sent it.
        message: Arc<str>,
    },
    /// The user may not run the command, or not with this channel.
    #[error("the user lacks a permission: {message}")]
    NotPermitted {
        /// The text as Redis sent it.
        message: Arc<str>,
    },
    /// Another reason.
    #[error("{message}")]
    Other {
        /// The text as Redis sent it.
        message: Arc<str>,
    },
}

impl Refusal {
    pub(super) fn of(message: Arc<str>) -> Self {
        if message.starts_with("NOPERM") {
            Self::NotPermitted { message }
        } else if message.starts_with("ERR unknown command") {
            Self::Unsupported { message }
        } else {
            Self::Other { message }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_differs_from_a_missing_permission() {
        let check = |text: &str, expected: fn(Arc<str>) -> Refusal| {
            assert_eq!(Refusal::of(text.into()), expected(text.into()), "{text}");
        };
        let old = "ERR unknown command `SSUBSCRIBE`, with args beginning with: `a`, ";
        check(old, |message| Refusal::Unsupported { message });
        check("NOPERM this user has no permissions", |message| {
            Refusal::NotPermitted { message }
        });
        check("ERR wrong number of arguments", |message| Refusal::Other {
            message,
        });
    }
}
