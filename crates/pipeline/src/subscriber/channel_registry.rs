//! Assigns each channel of a subscriber to a connection.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    ChannelState, Mailbox, Refusal, Session, SessionEvent, SessionReport, SubscriptionOrder,
};
use crate::client::{Backend, BatchSender};
use crate::cluster::endpoint;
use crate::config::Address;
use crate::node::Node;
use crate::outcome::{Outcome, Rejection};
use crate::subscriber::{Delivery, SubscriberOptions};
use crate::wire::{ServerError, Slot};

/// Bounds of the random delay before a refused channel is tried again. The bound doubles with each
/// refusal.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(5);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Number of consecutive redirects of a channel that are not reported to the reader.
const MAX_UNREPORTED_REDIRECTS: u32 = 3;

/// Delay before a subscription is tried again that the server does not support or permit.
const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Lifetime after the first subscription below which a connection counts as a failed attempt.
const MIN_SESSION_LIFETIME: Duration = Duration::from_secs(1);

/// Maximum number of queued orders for a session that connects. A channel without room is tried
/// again a moment later.
const MAX_QUEUED_ORDERS: usize = 1024;

/// The registry of channels: the session that each channel is subscribed on. One task owns it and
/// its sessions.
#[derive(Debug)]
pub(super) struct ChannelRegistry {
    sender: Arc<BatchSender>,
    options: SubscriberOptions,
    wanted: watch::Receiver<HashSet<Bytes>>,
    mailbox: Arc<Mailbox>,
    stop: CancellationToken,
    channels: HashMap<Bytes, Channel>,
    sessions: HashMap<Address, SessionHandle>,
    /// Nodes that are not connected to before the given time, with the number of their failures.
    backoffs: HashMap<Address, (u32, Instant)>,
    last_session: u64,
    reporter: mpsc::Sender<SessionReport>,
    reports: mpsc::Receiver<SessionReport>,
    /// Epoch of the topology by which channels are placed.
    epoch: u64,
}

#[derive(Debug)]
struct Channel {
    /// Node of the subscription. `None` if the channel is not placed.
    node: Option<Address>,
    not_before: Instant,
    /// Number of refusals since the last subscription.
    refusals: u32,
}

/// Handle of a running session.
#[derive(Debug)]
struct SessionHandle {
    id: u64,
    /// Time of the first subscription.
    subscribed_since: Option<Instant>,
    orders: mpsc::Sender<SubscriptionOrder>,
    stop: CancellationToken,
}

impl ChannelRegistry {
    pub(super) fn new(
        sender: Arc<BatchSender>,
        options: SubscriberOptions,
        mut wanted: watch::Receiver<HashSet<Bytes>>,
        mailbox: Arc<Mailbox>,
        stop: CancellationToken,
    ) -> Self {
        wanted.mark_changed();
        let (reporter, reports) = mpsc::channel(MAX_QUEUED_ORDERS);
        Self {
            sender,
            options,
            wanted,
            mailbox,
            stop,
            channels: HashMap::new(),
            sessions: HashMap::new(),
            backoffs: HashMap::new(),
            last_session: 0,
            reporter,
            reports,
            epoch: 0,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            self.follow_topology();
            let wake = self.place_channels();
            let sender = self.sender.clone();
            tokio::select! {
                Some(report) = self.reports.recv() => self.on_report(report),
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.follow_wanted(),
                    Err(_) => return,
                },
                () = wait_for_newer(&sender.backend, self.epoch) => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Places channels that have no node. Returns the time of the next attempt if some are left.
    fn place_channels(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let nowhere = self
            .channels
            .iter()
            .filter(|(_, channel)| channel.node.is_none());
        let mut waiting: Vec<(Bytes, Instant)> = nowhere
            .map(|(name, channel)| (name.clone(), channel.not_before))
            .collect();
        for (name, not_before) in &mut waiting {
            if *not_before <= now {
                *not_before = match self.place_channel(name, now) {
                    Ok(()) => continue,
                    Err(retry_at) => retry_at,
                };
            }
        }
        let left = waiting
            .iter()
            .filter(|(name, _)| self.channels[name].node.is_none());
        left.map(|(_, retry_at)| *retry_at).min()
    }

    /// Places one channel, or returns the time of the next attempt.
    fn place_channel(&mut self, name: &Bytes, now: Instant) -> Result<(), Instant> {
        let Some(node) = self.node_for(name) else {
            self.want_refresh();
            return Err(now + MAX_RETRY_DELAY);
        };
        let address = &node.address;
        if !self.sessions.contains_key(address) {
            if let Some((_, until)) = self.backoffs.get(address).filter(|(_, until)| *until > now) {
                return Err(*until);
            }
            self.open(address);
        }
        let order = SubscriptionOrder::Subscribe(name.clone());
        self.sessions[address]
            .orders
            .try_send(order)
            .map_err(|_| now + MAX_RETRY_DELAY)?;
        let channel = self
            .channels
            .get_mut(name)
            .expect("only channels of the roster are placed");
        channel.node = Some(address.clone());
        Ok(())
    }

    /// Returns the node for a channel. Broadcasts reach every node, so those of one subscriber
    /// share a connection.
    fn node_for(&self, name: &[u8]) -> Option<Arc<Node>> {
        let cluster = match &self.sender.backend {
            Backend::Single(node) => return Some(node.clone()),
            Backend::Cluster(cluster) => cluster,
        };
        let topology = cluster.topology();
        if self.options.delivery == Delivery::Sharded {
            return topology.owner(Slot::for_key(name)).cloned();
        }
        let used = topology
            .nodes
            .iter()
            .find(|node| self.sessions.contains_key(&node.address));
        let now = Instant::now();
        let is_rested = |node: &&Arc<Node>| {
            self.backoffs
                .get(&node.address)
                .is_none_or(|(_, until)| *until <= now)
        };
        let rested: Vec<&Arc<Node>> = topology.nodes.iter().filter(is_rested).collect();
        used.or_else(|| fastrand::choice(rested).or_else(|| fastrand::choice(&topology.nodes)))
            .cloned()
    }

    /// Starts a session.
    fn open(&mut self, address: &Address) {
        self.last_session += 1;
        let (orders, receiver) = mpsc::channel(MAX_QUEUED_ORDERS);
        let stop = self.stop.child_token();
        let session = Session {
            id: self.last_session,
            address: address.clone(),
            context: self.sender.context.clone(),
            delivery: self.options.delivery,
            max_message_bytes: self.options.queue_bytes,
            orders: receiver,
            reports: self.reporter.clone(),
            mailbox: self.mailbox.clone(),
        };
        self.sender.context.spawn(stop.clone(), session.run());
        let handle = SessionHandle {
            id: self.last_session,
            subscribed_since: None,
            orders,
            stop,
        };
        self.sessions.insert(address.clone(), handle);
    }

    fn on_report(&mut self, report: SessionReport) {
        let SessionReport {
            address,
            session,
            event,
        } = report;
        // A session that was stopped may have sent a report before.
        if self
            .sessions
            .get(&address)
            .is_none_or(|handle| handle.id != session)
        {
            return;
        }
        match event {
            SessionEvent::Ended(reason) => self.on_session_end(&address, &reason.into()),
            SessionEvent::Subscribed(name) => {
                let Some(channel) = self.channel_at(&name, &address) else {
                    return;
                };
                channel.refusals = 0;
                if let Some(handle) = self.sessions.get_mut(&address) {
                    handle.subscribed_since.get_or_insert_with(Instant::now);
                }
                self.mailbox
                    .set_channel_state(&name, ChannelState::Subscribed);
            }
            SessionEvent::Unsubscribed(name) => {
                let Some(channel) = self.channel_at(&name, &address) else {
                    return;
                };
                channel.node = None;
                self.mailbox.set_channel_state(
                    &name,
                    ChannelState::Unsubscribed("its slot moved to another node".into()),
                );
                self.want_refresh();
            }
            SessionEvent::Refused(name, error) => self.on_refused(&name, &address, error),
        }
    }

    /// Returns a channel if it is placed at this node.
    fn channel_at(&mut self, name: &[u8], address: &Address) -> Option<&mut Channel> {
        self.channels
            .get_mut(name)
            .filter(|channel| channel.node.as_ref() == Some(address))
    }

    /// Removes a session that has ended. Its channels are placed again.
    fn on_session_end(&mut self, address: &Address, reason: &Arc<str>) {
        let Some(handle) = self.sessions.remove(address) else {
            return;
        };
        let worked = handle
            .subscribed_since
            .is_some_and(|since| since.elapsed() >= MIN_SESSION_LIFETIME);
        let failures = match self.backoffs.get(address) {
            Some((failures, _)) if !worked => failures.saturating_add(1),
            _ => 1,
        };
        if failures == 1 {
            warn!(node = %address, error = %reason, "subscription to redis lost");
        }
        let until = Instant::now() + self.sender.context.config.backoff(failures);
        self.backoffs.insert(address.clone(), (failures, until));
        self.unplace_channels(address, reason);
        self.want_refresh();
    }

    fn unplace_channels(&mut self, address: &Address, reason: &Arc<str>) {
        for (name, channel) in &mut self.channels {
            if channel.node.as_ref() == Some(address) {
                channel.node = None;
                self.mailbox
                    .set_channel_state(name, ChannelState::Unsubscribed(reason.clone()));
            }
        }
    }

    /// Handles an error reply: another node has the channel, the error is temporary, or the
    /// subscription is refused for good.
    fn on_refused(&mut self, name: &Bytes, address: &Address, error: ServerError) {
        let Some(channel) = self.channel_at(name, address) else {
            return;
        };
        channel.node = None;
        let bound = MIN_RETRY_DELAY
            .saturating_mul(1 << channel.refusals.min(16))
            .min(MAX_RETRY_DELAY);
        channel.refusals = channel.refusals.saturating_add(1);
        let refusals = channel.refusals;
        channel.not_before = Instant::now() + bound.mul_f64(fastrand::f64());
        let message = error.message.clone();
        match Outcome::from_answer(Err(error)) {
            Outcome::Rejected(rejected) => {
                // One redirect or two are usual on the way to a node, and are not reported.
                if refusals > MAX_UNREPORTED_REDIRECTS {
                    self.mailbox
                        .set_channel_state(name, ChannelState::Unsubscribed(message));
                }
                self.on_redirect(address, &rejected.kind);
            }
            _ => {
                channel.not_before = Instant::now() + REFUSED_RETRY_DELAY;
                self.mailbox
                    .set_channel_state(name, ChannelState::Refused(Refusal::from_message(message)));
            }
        }
    }

    fn on_redirect(&self, responder: &Address, kind: &Rejection) {
        let Backend::Cluster(cluster) = &self.sender.backend else {
            return;
        };
        let target = match kind {
            Rejection::Moved {
                slot,
                endpoint: text,
            } => {
                let owner =
                    endpoint(text, responder).and_then(|address| cluster.node_named(address));
                Slot::new(*slot).zip(owner)
            }
            _ => None,
        };
        match target {
            Some((slot, owner)) => cluster.on_moved(slot, &owner, self.epoch),
            None => cluster.want_refresh(),
        }
    }

    fn want_refresh(&self) {
        if let Backend::Cluster(cluster) = &self.sender.backend {
            cluster.want_refresh();
        }
    }

    /// Adds and removes channels as the reader requests.
    fn follow_wanted(&mut self) {
        let wanted = self.wanted.borrow_and_update().clone();
        let removed: Vec<Bytes> = self
            .channels
            .keys()
            .filter(|name| !wanted.contains(*name))
            .cloned()
            .collect();
        for name in removed {
            self.unsubscribe(&name);
            self.channels.remove(&name);
            self.mailbox.forget(&name);
        }
        let now = Instant::now();
        for name in wanted {
            self.channels.entry(name).or_insert(Channel {
                node: None,
                not_before: now,
                refusals: 0,
            });
        }
    }

    /// Removes channels from nodes that are not theirs any more, if the topology has changed.
    fn follow_topology(&mut self) {
        let Backend::Cluster(cluster) = &self.sender.backend else {
            return;
        };
        let topology = cluster.topology();
        if topology.epoch == self.epoch {
            return;
        }
        self.epoch = topology.epoch;
        let stays = |name: &[u8], address: &Address| match self.options.delivery {
            Delivery::Broadcast => topology.has_node(address),
            // A channel stays where it is if its slot has no owner.
            Delivery::Sharded => topology
                .owner(Slot::for_key(name))
                .is_none_or(|node| node.address == *address),
        };
        let placed = self
            .channels
            .iter()
            .filter_map(|(name, channel)| Some((name, channel.node.as_ref()?)));
        let misplaced: Vec<Bytes> = placed
            .filter(|(name, address)| !stays(name, address))
            .map(|(name, _)| name.clone())
            .collect();
        drop(topology);
        for name in misplaced {
            self.unsubscribe(&name);
            self.mailbox
                .set_channel_state(&name, ChannelState::Unsubscribed("its node changed".into()));
        }
    }

    /// Ends the subscription of a channel at its node, and the session with the last one.
    fn unsubscribe(&mut self, name: &Bytes) {
        let Some(address) = self
            .channels
            .get_mut(name)
            .and_then(|channel| channel.node.take())
        else {
            return;
        };
        let is_last = self
            .channels
            .values()
            .all(|channel| channel.node.as_ref() != Some(&address));
        let Some(handle) = self.sessions.get(&address) else {
            return;
        };
        if is_last
            || handle
                .orders
                .try_send(SubscriptionOrder::Unsubscribe(name.clone()))
                .is_err()
        {
            handle.stop.cancel();
            self.sessions.remove(&address);
            self.unplace_channels(&address, &"the connection was replaced".into());
        }
    }
}

impl Drop for ChannelRegistry {
    /// Closes the mailbox, so that the reader gets its end.
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

/// Waits for a topology that is newer than the one of `epoch`.
async fn wait_for_newer(backend: &Backend, epoch: u64) {
    match backend {
        Backend::Single(_) => std::future::pending().await,
        Backend::Cluster(cluster) => cluster.wait_for_newer(epoch).await,
    }
}
