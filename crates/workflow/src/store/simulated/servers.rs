//! Servers of the simulated store, and the messages between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::id::Partition;
use crate::store::change_notice::{ChangeNotice, ServerId};
use crate::store::subscription::{StoreEvent, Topic};

/// The heartbeats of servers, and their subscriptions.
#[derive(Debug, Default)]
pub(super) struct Servers {
    pub(super) entries: BTreeMap<ServerId, String>,
    listeners: Vec<Weak<Listener>>,
    /// Number of further messages that are lost.
    pub(super) lost: u64,
}

#[derive(Debug, Default)]
struct Listener {
    topics: Mutex<BTreeSet<Topic>>,
    heard: Mutex<VecDeque<StoreEvent>>,
    arrived: Notify,
}

/// A subscription in the simulated store, see [`crate::store::subscription::Subscription`].
#[derive(Debug)]
pub(crate) struct Ears(Arc<Listener>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    pub(super) fn listen(&mut self) -> Ears {
        let listener = Arc::new(Listener::default());
        self.listeners
            .retain(|listener| listener.strong_count() > 0);
        self.listeners.push(Arc::downgrade(&listener));
        Ears(listener)
    }

    pub(super) fn announce(&mut self, partition: Partition, announcement: Option<ChangeNotice>) {
        if let Some(said) = announcement {
            self.tell(Topic::Partition(partition, said.audience()), &said.write());
        }
    }

    pub(super) fn tell(&mut self, topic: Topic, message: &[u8]) {
        if self.lost > 0 {
            self.lost -= 1;
            return;
        }
        let Some(heard) = StoreEvent::of(topic, message) else {
            return;
        };
        for listener in self.listeners.iter().filter_map(Weak::upgrade) {
            if locked(&listener.topics).contains(&topic) {
                listener.hear(heard.clone());
            }
        }
    }
}

impl Listener {
    fn hear(&self, heard: StoreEvent) {
        locked(&self.heard).push_back(heard);
        self.arrived.notify_one();
    }
}

impl Ears {
    pub(crate) fn listen_to(&self, topics: &[Topic]) {
        let wanted: BTreeSet<Topic> = topics.iter().copied().collect();
        let before = std::mem::replace(&mut *locked(&self.0.topics), wanted.clone());
        wanted
            .difference(&before)
            .for_each(|topic| self.0.hear(StoreEvent::Subscribed(*topic)));
    }

    pub(crate) async fn next(&mut self) -> Option<StoreEvent> {
        loop {
            if let Some(heard) = locked(&self.0.heard).pop_front() {
                return Some(heard);
            }
            self.0.arrived.notified().await;
        }
    }
}
