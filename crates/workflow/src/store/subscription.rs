//! Messages that a server receives from the other servers of its store.

use super::change_notice::release::Release;
#[cfg(feature = "test-util")]
use super::simulated;
use super::{ChangeNotice, ServerId, redis};
use crate::model::Partition;

/// A topic of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// Messages for all servers: changes of their membership, and of paused queues.
    Servers,
    /// Changes of a partition.
    Partition(Partition),
}

/// Messages of a server to all others. The numbers are their first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broadcast {
    /// A server started or stopped: the members should be read again.
    Servers = b's' as isize,
    /// A server has just learned of another one, and did not announce its earlier writes: ready
    /// jobs should be read again.
    Resync = b'l' as isize,
    /// A queue was paused or resumed.
    Queues = b'q' as isize,
}

/// An event of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreEvent {
    /// Messages of a topic are received from now on. Earlier ones may have been missed.
    Subscribed(Topic),
    /// Messages of a topic are not received.
    Unsubscribed {
        topic: Topic,
        reason: String,
        /// Whether Redis forbids it.
        refused: bool,
    },
    /// A message of a server to all others.
    Broadcast(ServerId, Broadcast),
    /// A change of a partition.
    Announced(Partition, ChangeNotice),
    /// A permit of a limit was released.
    Released(Release),
    /// Messages were missed.
    Gap,
}

impl Broadcast {
    const ALL: [Self; 3] = [Self::Servers, Self::Resync, Self::Queues];

    pub(crate) fn write(self, by: ServerId) -> Vec<u8> {
        [&[self as u8][..], &by.0.to_be_bytes()].concat()
    }

    fn read(message: &[u8]) -> Option<(ServerId, Self)> {
        let (code, by) = message.split_first()?;
        let broadcast = Self::ALL.into_iter().find(|known| *known as u8 == *code)?;
        Some((ServerId(u64::from_be_bytes(by.try_into().ok()?)), broadcast))
    }
}

impl StoreEvent {
    /// The event of a message. `None` if the message has another version.
    pub(crate) fn from_message(topic: Topic, message: &[u8]) -> Option<Self> {
        match topic {
            Topic::Servers => {
                Broadcast::read(message).map(|(by, broadcast)| Self::Broadcast(by, broadcast))
            }
            Topic::Partition(partition) => {
                let notice =
                    ChangeNotice::read(message).map(|notice| Self::Announced(partition, notice));
                notice.or_else(|| Release::read(message).map(Self::Released))
            }
        }
    }
}

/// A subscription to messages of other servers. A new one may have missed any message.
#[derive(Debug)]
pub(crate) enum Subscription {
    Redis(redis::messaging::subscription::RedisSubscription),
    #[cfg(feature = "test-util")]
    Simulated(simulated::servers::SimulatedSubscription),
}

impl Subscription {
    /// Subscribes to the given topics, and unsubscribes from all others.
    pub(crate) fn set_topics(&self, topics: &[Topic]) {
        match self {
            Self::Redis(subscription) => subscription.set_topics(topics),
            #[cfg(feature = "test-util")]
            Self::Simulated(subscription) => subscription.set_topics(topics),
        }
    }

    /// The next event. `None` if there will be none.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<StoreEvent> {
        match self {
            Self::Redis(subscription) => subscription.next().await,
            #[cfg(feature = "test-util")]
            Self::Simulated(subscription) => subscription.next().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_are_read_back() {
        for broadcast in Broadcast::ALL {
            let event = StoreEvent::from_message(Topic::Servers, &broadcast.write(ServerId(9)));
            assert_eq!(event, Some(StoreEvent::Broadcast(ServerId(9), broadcast)));
        }
        assert_eq!(StoreEvent::from_message(Topic::Servers, b""), None);
        assert_eq!(StoreEvent::from_message(Topic::Servers, b"s1"), None);
    }

    #[test]
    fn a_release_is_read_back() {
        let (by, topic) = (ServerId(9), Topic::Partition(Partition(1)));
        let event = StoreEvent::from_message(topic, &Release::write(by, "a\u{1}b"));
        assert_eq!(
            event,
            Some(StoreEvent::Released(Release {
                by,
                limit: "a\u{1}b".to_owned()
            }))
        );
        assert_eq!(StoreEvent::from_message(topic, b"\x021234567"), None);
        assert_eq!(StoreEvent::from_message(topic, b"\x0212345678\xff"), None);
    }
}
