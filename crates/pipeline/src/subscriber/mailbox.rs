//! The queue of events for the reader of a subscriber: bounded in messages and bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{Refusal, SubscriberEvent};
use crate::subscriber::SubscriberOptions;

/// The queue of events for one reader. Several connections add to it.
#[derive(Debug)]
pub(super) struct Mailbox {
    queue_messages: usize,
    queue_bytes: usize,
    state: Mutex<MailboxState>,
    /// Notified when there is an event.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct MailboxState {
    /// State of each channel that was reported to the reader, or will be.
    channel_states: HashMap<Bytes, ChannelState>,
    /// Channels whose state is not reported yet. Each is in it at most once, so the channels bound
    /// it.
    unreported: VecDeque<Bytes>,
    messages: VecDeque<(Bytes, Bytes)>,
    bytes: usize,
    /// Number of dropped messages that is not reported yet.
    missed: u64,
    closed: bool,
}

/// State of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChannelState {
    Subscribed,
    Unsubscribed(Arc<str>),
    Refused(Refusal),
}

impl Mailbox {
    pub(super) fn new(options: &SubscriberOptions) -> Self {
        let SubscriberOptions {
            queue_messages,
            queue_bytes,
            ..
        } = *options;
        Self {
            queue_messages,
            queue_bytes,
            state: Mutex::default(),
            arrived: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, or counts it as missed if there is no room.
    pub(super) fn add_message(&self, channel: &Bytes, payload: &[u8]) {
        let mut state = self.state();
        let bytes = channel.len() + payload.len();
        if state.messages.len() >= self.queue_messages || state.bytes + bytes > self.queue_bytes {
            state.missed += 1;
        } else {
            state.bytes += bytes;
            // The payload is copied, because it may be a small part of a large buffer.
            state
                .messages
                .push_back((channel.clone(), Bytes::copy_from_slice(payload)));
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Sets the state of a channel. Only the latest state is reported to the reader.
    ///
    /// A failure after a failure is not reported. A new subscription always is.
    pub(super) fn set_channel_state(&self, channel: &Bytes, channel_state: ChannelState) {
        let mut state = self.state();
        let is_failure = channel_state != ChannelState::Subscribed;
        let failed = state
            .channel_states
            .get(channel)
            .is_some_and(|last| *last != ChannelState::Subscribed);
        let same_kind = state
            .channel_states
            .get(channel)
            .map(std::mem::discriminant)
            == Some(std::mem::discriminant(&channel_state));
        let is_weaker = failed && matches!(channel_state, ChannelState::Unsubscribed(_));
        if is_failure && failed && (same_kind || is_weaker) {
            return;
        }
        state.channel_states.insert(channel.clone(), channel_state);
        if !state.unreported.contains(channel) {
            state.unreported.push_back(channel.clone());
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Removes a channel that is not wanted any more, with its messages.
    pub(super) fn forget(&self, channel: &Bytes) {
        let mut state = self.state();
        state.channel_states.remove(channel);
        state.unreported.retain(|other| other != channel);
        state.messages.retain(|(other, _)| other != channel);
        state.bytes = state
            .messages
            .iter()
            .map(|(channel, payload)| channel.len() + payload.len())
            .sum();
    }

    /// Closes the mailbox: no more events follow.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_one();
    }

    /// Returns the next event. `None` after [`Mailbox::close`].
    pub(super) async fn next(&self) -> Option<SubscriberEvent> {
        loop {
            {
                let mut state = self.state();
                if let Some(event) = state.next() {
                    return Some(event);
                }
                if state.closed {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }
}

impl MailboxState {
    fn next(&mut self) -> Option<SubscriberEvent> {
        if let Some(channel) = self.unreported.pop_front() {
            let channel_state = self.channel_states[&channel].clone();
            return Some(channel_state.into_event(channel));
        }
        if self.missed > 0 {
            return Some(SubscriberEvent::Missed {
                messages: std::mem::take(&mut self.missed),
            });
        }
        let (channel, payload) = self.messages.pop_front()?;
        self.bytes -= channel.len() + payload.len();
        Some(SubscriberEvent::Message { channel, payload })
    }
}

impl ChannelState {
    fn into_event(self, channel: Bytes) -> SubscriberEvent {
        match self {
            Self::Subscribed => SubscriberEvent::Subscribed { channel },
            Self::Unsubscribed(reason) => SubscriberEvent::Unsubscribed { channel, reason },
            Self::Refused(refusal) => SubscriberEvent::Refused { channel, refusal },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscriber::Delivery;

    fn mailbox(queue_messages: usize, queue_bytes: usize) -> Mailbox {
        let options = SubscriberOptions {
            queue_messages,
            queue_bytes,
            ..SubscriberOptions::new(Delivery::Broadcast)
        };
        Mailbox::new(&options)
    }

    fn events(mailbox: &Mailbox) -> Vec<SubscriberEvent> {
        std::iter::from_fn(|| mailbox.state().next()).collect()
    }

    fn message(payload: &'static str) -> SubscriberEvent {
        SubscriberEvent::Message {
            channel: "c".into(),
            payload: payload.into(),
        }
    }

    /// Which of three messages of three bytes wait, and how many were missed.
    fn check(messages: usize, bytes: usize, kept: usize) {
        let mailbox = mailbox(messages, bytes);
        ["11", "22", "33"]
            .iter()
            .for_each(|payload| mailbox.add_message(&"c".into(), payload.as_bytes()));
        let missed = (kept < 3).then_some(SubscriberEvent::Missed {
            messages: 3 - kept as u64,
        });
        let waiting = ["11", "22", "33"].into_iter().take(kept).map(message);
        assert_eq!(
            events(&mailbox),
            missed.into_iter().chain(waiting).collect::<Vec<_>>(),
            "{messages}, {bytes}"
        );
        mailbox.add_message(&"c".into(), b"44");
        assert_eq!(events(&mailbox), [message("44")], "there is room again");
    }

    #[test]
    fn the_queue_is_bounded_in_messages_and_bytes() {
        check(4, 100, 3);
        check(2, 100, 2);
        check(4, 8, 2);
        check(4, 9, 3);
    }

    #[test]
    fn a_channel_has_one_piece_of_news_however_often_it_comes_and_goes() {
        let mailbox = mailbox(4, 100);
        let channel = Bytes::from("c");
        for round in 0..100 {
            mailbox.set_channel_state(&channel, ChannelState::Subscribed);
            mailbox.set_channel_state(
                &channel,
                ChannelState::Unsubscribed(format!("loss {round}").into()),
            );
        }
        let lost = SubscriberEvent::Unsubscribed {
            channel: channel.clone(),
            reason: "loss 99".into(),
        };
        assert_eq!(events(&mailbox), [lost]);
        mailbox.set_channel_state(&channel, ChannelState::Unsubscribed("still".into()));
        assert_eq!(events(&mailbox), [], "a failure after a failure is no news");
        mailbox.set_channel_state(&channel, ChannelState::Subscribed);
        mailbox.set_channel_state(&channel, ChannelState::Subscribed);
        assert_eq!(events(&mailbox), [SubscriberEvent::Subscribed { channel }]);
    }

    #[test]
    fn a_refusal_is_reported_once() {
        let mailbox = mailbox(4, 100);
        let channel = Bytes::from("c");
        let refusal = Refusal::from_message("NOPERM no".into());
        for _ in 0..3 {
            mailbox.set_channel_state(&channel, ChannelState::Unsubscribed("lost".into()));
            mailbox.set_channel_state(&channel, ChannelState::Refused(refusal.clone()));
        }
        assert_eq!(
            events(&mailbox),
            [SubscriberEvent::Refused {
                channel: channel.clone(),
                refusal: refusal.clone()
            }]
        );
        mailbox.set_channel_state(&channel, ChannelState::Refused(refusal));
        assert_eq!(events(&mailbox), []);
    }

    #[test]
    fn a_channel_that_is_not_wanted_leaves_nothing() {
        let mailbox = mailbox(4, 100);
        mailbox.set_channel_state(&"c".into(), ChannelState::Subscribed);
        mailbox.add_message(&"c".into(), b"11");
        mailbox.add_message(&"d".into(), b"22");
        mailbox.forget(&"c".into());
        let left = SubscriberEvent::Message {
            channel: "d".into(),
            payload: "22".into(),
        };
        assert_eq!(events(&mailbox), [left]);
    }
}
