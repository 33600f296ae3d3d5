//! Servers of the simulated store, and the messages between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::model::Partition;
use crate::store::{ChangeNotice, ServerId, StoreEvent, Topic};

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
    events: Mutex<VecDeque<StoreEvent>>,
    arrived: Notify,
}

/// A subscription in the simulated store, see [`crate::store::Subscription`].
#[derive(Debug)]
pub(crate) struct SimulatedSubscription(Arc<Listener>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    pub(super) fn subscribe(&mut self) -> SimulatedSubscription {
        let listener = Arc::new(Listener::default());
        self.listeners
            .retain(|listener| listener.strong_count() > 0);
        self.listeners.push(Arc::downgrade(&listener));
        SimulatedSubscription(listener)
    }

    pub(super) fn announce(&mut self, partition: Partition, notice: Option<ChangeNotice>) {
        if let Some(notice) = notice {
            self.publish(Topic::Partition(partition), &notice.write());
        }
    }

    pub(super) fn publish(&mut self, topic: Topic, message: &[u8]) {
        if self.lost > 0 {
            self.lost -= 1;
            return;
        }
        let Some(event) = StoreEvent::from_message(topic, message) else {
            return;
        };
        for listener in self.listeners.iter().filter_map(Weak::upgrade) {
            if lock(&listener.topics).contains(&topic) {
                listener.push(event.clone());
            }
        }
    }
}

impl Listener {
    fn push(&self, event: StoreEvent) {
        lock(&self.events).push_back(event);
        self.arrived.notify_one();
    }
}

impl SimulatedSubscription {
    pub(crate) fn set_topics(&self, topics: &[Topic]) {
        let wanted: BTreeSet<Topic> = topics.iter().copied().collect();
        let before = std::mem::replace(&mut *lock(&self.0.topics), wanted.clone());
        wanted
            .difference(&before)
            .for_each(|topic| self.0.push(StoreEvent::Subscribed(*topic)));
    }

    pub(crate) async fn next(&mut self) -> Option<StoreEvent> {
        loop {
            if let Some(event) = lock(&self.0.events).pop_front() {
                return Some(event);
            }
            self.0.arrived.notified().await;
        }
    }
}
