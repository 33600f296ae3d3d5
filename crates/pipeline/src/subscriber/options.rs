//! Options of a subscriber.

/// How messages are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// PUBLISH and SUBSCRIBE. In a cluster every message goes to every node.
    Broadcast,
    /// SPUBLISH and SSUBSCRIBE, from Redis 7 on. In a cluster a channel belongs to the node that
    /// owns its slot, as a key does.
    Sharded,
}

/// Options of a [`Subscriber`](crate::Subscriber): the kind of messages, and the bounds of its queue.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SubscriberOptions {
    /// How messages are published.
    pub delivery: Delivery,
    /// Maximum number of messages that are queued for the reader. Default 4,096. Further messages
    /// are dropped, and reported as [`SubscriberEvent::Missed`](crate::SubscriberEvent::Missed).
    pub queue_messages: usize,
    /// Maximum bytes of messages that are queued for the reader. Default 1 MiB. A single message of
    /// more bytes ends the connection, which is reported as well.
    pub queue_bytes: usize,
}

impl SubscriberOptions {
    /// Creates options with default bounds.
    #[must_use]
    pub fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            queue_messages: 4096,
            queue_bytes: 1 << 20,
        }
    }
}
