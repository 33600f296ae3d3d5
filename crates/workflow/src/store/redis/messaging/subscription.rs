//! Messages between servers through Redis channels. Redis does not store them.

pub(crate) mod publish_support;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_pipeline::{
    Arg, Batch, Delivery, Outcome, Refusal, Subscriber, SubscriberEvent, SubscriberOptions,
};

use crate::codec::Change;
use crate::model::Partition;
use crate::store::redis::apply::ScriptCall;
use crate::store::redis::keys::Keys;
use crate::store::redis::read::reply::{self, answer};
use crate::store::redis::{RedisStore, key_arg};
use crate::store::{Notifier, StoreEvent, Topic};

/// The field of the store's facts that has the kind of channel.
const DELIVERY_FIELD: &[u8] = b"messages";

/// A subscription in Redis, see [`crate::store::Subscription`].
#[derive(Debug)]
pub(crate) struct RedisSubscription {
    store: RedisStore,
    subscriber: Subscriber,
    topics: Mutex<HashMap<Bytes, Topic>>,
}

fn delivery_name(delivery: Delivery) -> &'static [u8] {
    match delivery {
        Delivery::Sharded => b"sharded",
        Delivery::Broadcast => b"broadcast",
    }
}

fn command_for(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Sharded => "SPUBLISH",
        Delivery::Broadcast => "PUBLISH",
    }
}

impl RedisStore {
    /// The delivery that the store's servers use, after writing `found` if none is recorded.
    async fn agreed_delivery(&self, found: Option<Delivery>) -> Option<Delivery> {
        let key = Keys::meta(self.keys.prefix());
        let key = key_arg(&key);
        let field = Arg::Bytes(DELIVERY_FIELD);
        let mut batch = Batch::new();
        let mut unit = batch.unit();
        if let Some(found) = found {
            unit = unit.repeatable("HSETNX", &[key, field, Arg::Bytes(delivery_name(found))]);
        }
        unit.repeatable("HGET", &[key, field]);
        let outcomes = self.send(batch).await;
        let agreed = reply::bytes(answer(outcomes.last()?).ok()?).ok()??;
        [Delivery::Sharded, Delivery::Broadcast]
            .into_iter()
            .find(|&delivery| delivery_name(delivery) == agreed.as_ref())
    }

    async fn publish_by(&self, delivery: Delivery, message: &[u8]) -> Outcome {
        let [_, channel] = self.keys.servers();
        // The channel is in the slot of a key with its name.
        let args = [key_arg(&channel), Arg::Bytes(message)];
        self.command(command_for(delivery), &args).await
    }

    /// Publishes a message to all servers. If it is lost, they find out later.
    pub(crate) async fn publish(&self, message: &[u8]) {
        if let Some(delivery) = self.publish_support.delivery() {
            let _lost = self.publish_by(delivery, message).await;
        }
    }

    /// Adds to each call the notice about its changes.
    pub(crate) fn announce(
        &self,
        partition: Partition,
        changes: &[Change],
        notifier: &Notifier,
        calls: &mut [ScriptCall<'_>],
    ) {
        let Some(delivery) = self.publish_support.delivery() else {
            return;
        };
        let mut changes = changes.iter();
        for call in calls {
            if let Some(notice) = notifier.notice_for(partition, changes.by_ref().take(call.len()))
            {
                call.announce(
                    command_for(delivery),
                    self.keys.channel(partition),
                    notice.write(),
                );
            }
        }
    }

    /// The command by which a script publishes. `None` if it is unknown or forbidden.
    pub(crate) fn publish_command(&self) -> Option<&'static str> {
        self.publish_support.delivery().map(command_for)
    }

    /// A subscription to messages of other servers. `None` if Redis forbids publishing, or the
    /// command is unknown.
    pub(crate) fn subscribe(&self) -> Option<RedisSubscription> {
        let options = SubscriberOptions::new(self.publish_support.delivery()?);
        let subscriber = Subscriber::new(&self.client, Vec::<Bytes>::new(), options);
        Some(RedisSubscription {
            store: self.clone(),
            subscriber,
            topics: Mutex::default(),
        })
    }
}

impl RedisSubscription {
    fn topics(&self) -> MutexGuard<'_, HashMap<Bytes, Topic>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_topics(&self, topics: &[Topic]) {
        let keys = &self.store.keys;
        let channel = |topic: &Topic| match *topic {
            Topic::Servers => keys.servers()[1].clone(),
            Topic::Partition(partition) => keys.channel(partition),
        };
        let named: HashMap<Bytes, Topic> = topics
            .iter()
            .map(|topic| (channel(topic).into(), *topic))
            .collect();
        self.subscriber.set_channels(named.keys().cloned());
        *self.topics() = named;
    }

    pub(crate) async fn next(&mut self) -> Option<StoreEvent> {
        loop {
            let event = self.subscriber.next().await?;
            if let Some(store_event) = self.on_event(event) {
                return Some(store_event);
            }
        }
    }

    fn on_event(&self, event: SubscriberEvent) -> Option<StoreEvent> {
        let topic = |channel: &Bytes| self.topics().get(channel).copied();
        match event {
            SubscriberEvent::Subscribed { channel } => topic(&channel).map(StoreEvent::Subscribed),
            SubscriberEvent::Unsubscribed { channel, reason } => {
                topic(&channel).map(|topic| StoreEvent::Unsubscribed {
                    topic,
                    reason: reason.to_string(),
                    refused: false,
                })
            }
            SubscriberEvent::Refused { channel, refusal } => {
                let refused = !matches!(refusal, Refusal::Other { .. });
                topic(&channel).map(|topic| StoreEvent::Unsubscribed {
                    topic,
                    reason: refusal.to_string(),
                    refused,
                })
            }
            SubscriberEvent::Message { channel, payload } => {
                StoreEvent::from_message(topic(&channel)?, &payload)
            }
            SubscriberEvent::Missed { .. } => Some(StoreEvent::Gap),
            // Later versions may have further events.
            _ => None,
        }
    }
}
