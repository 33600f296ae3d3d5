//! What a server hears from the others of its store.

use super::change_notice::{Audience, ChangeNotice, ServerId};
use super::redis;
use super::release::Release;
#[cfg(feature = "test-util")]
use super::simulated;
use crate::id::Partition;

/// What can be listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// What concerns all servers: who they are, and which queues are paused.
    Servers,
    /// What was written to a partition.
    Partition(Partition, Audience),
}

/// What servers call out to all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broadcast {
    /// A server came or left: the servers should be read again.
    Servers,
    /// Some server has just learned of another one: what it wrote before was not announced.
    Look,
    /// A queue was paused or resumed.
    Queues,
}

/// What is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreEvent {
    /// From now on a topic is heard. What was said before may have been missed.
    Subscribed(Topic),
    /// A topic is not heard.
    Unsubscribed {
        topic: Topic,
        reason: String,
        /// Redis does not allow it.
        refused: bool,
    },
    /// A call of a server.
    Broadcast(ServerId, Broadcast),
    /// A change of a partition.
    Announced(Partition, ChangeNotice),
    /// A place in a limit is free.
    Released(Release),
    /// Something was missed.
    Gap,
}

impl Broadcast {
    const ALL: [(u8, Self); 3] = [
        (b's', Self::Servers),
        (b'l', Self::Look),
        (b'q', Self::Queues),
    ];

    pub(crate) fn write(self, by: ServerId) -> Vec<u8> {
        let word = Self::ALL
            .into_iter()
            .find(|(_, call)| *call == self)
            .expect("all are listed")
            .0;
        [&[word][..], &by.0.to_be_bytes()].concat()
    }

    fn read(message: &[u8]) -> Option<(ServerId, Self)> {
        let (word, by) = message.split_first()?;
        let call = Self::ALL.into_iter().find(|(known, _)| known == word)?.1;
        Some((ServerId(u64::from_be_bytes(by.try_into().ok()?)), call))
    }
}

impl StoreEvent {
    /// What a message says. None: it is of another version.
    pub(crate) fn of(topic: Topic, message: &[u8]) -> Option<Self> {
        match topic {
            Topic::Servers => Broadcast::read(message).map(|(by, call)| Self::Broadcast(by, call)),
            Topic::Partition(partition, _) => {
                let said = ChangeNotice::read(message).map(|said| Self::Announced(partition, said));
                said.or_else(|| Release::read(message).map(Self::Released))
            }
        }
    }
}

/// Listens to what other servers say. Who has just begun to listen may have missed anything.
#[derive(Debug)]
pub(crate) enum Subscription {
    Redis(redis::subscription::Ears),
    #[cfg(feature = "test-util")]
    Simulated(simulated::servers::Ears),
}

impl Subscription {
    /// Listens to these topics, and to no others.
    pub(crate) fn listen_to(&self, topics: &[Topic]) {
        match self {
            Self::Redis(ears) => ears.listen_to(topics),
            #[cfg(feature = "test-util")]
            Self::Simulated(ears) => ears.listen_to(topics),
        }
    }

    /// The next thing that is heard. None: there will be nothing.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<StoreEvent> {
        match self {
            Self::Redis(ears) => ears.next().await,
            #[cfg(feature = "test-util")]
            Self::Simulated(ears) => ears.next().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_back() {
        for (_, call) in Broadcast::ALL {
            let heard = StoreEvent::of(Topic::Servers, &call.write(ServerId(9)));
            assert_eq!(heard, Some(StoreEvent::Broadcast(ServerId(9), call)));
        }
        assert_eq!(StoreEvent::of(Topic::Servers, b""), None);
        assert_eq!(StoreEvent::of(Topic::Servers, b"s1"), None);
    }

    #[test]
    fn a_release_is_read_back() {
        let (by, topic) = (
            ServerId(9),
            Topic::Partition(Partition(1), Audience::Waiting),
        );
        let heard = StoreEvent::of(topic, &Release::write(by, "a\u{1}b"));
        assert_eq!(
            heard,
            Some(StoreEvent::Released(Release {
                by,
                set: "a\u{1}b".to_owned()
            }))
        );
        assert_eq!(StoreEvent::of(topic, b"\x021234567"), None);
        assert_eq!(StoreEvent::of(topic, b"\x0212345678\xff"), None);
    }
}
