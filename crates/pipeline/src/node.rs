//! One Redis server: its connections, and the groups that wait for them.

mod connect;
mod link;
#[cfg(test)]
mod model;
mod pool;
mod queue;
mod selection;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::batch::{Batch, Load};
use crate::call::CallGroup;
use crate::call::lock::{Mutex, MutexGuard};
use crate::config::{Address, Config};
use crate::link::{
    ClientContext, CloseReason, Counters, LinkEffect, LinkEvent, LinkId, LinkOwner, LinkReport,
    Stats, count,
};
use crate::outcome::NotSent;
use link::Link;
use pool::{Demand, Pool};
use queue::GroupQueue;

/// One Redis server.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
    pub(crate) context: Arc<ClientContext>,
    pub(crate) counters: Counters,
    /// Child token of the client's: a node can be closed while the client continues.
    stop: CancellationToken,
    state: Mutex<NodeState>,
}

#[derive(Debug)]
struct NodeState {
    pool: Pool,
    connect: ConnectState,
    /// Number of failed attempts since a connection last lived long enough.
    failures: u32,
}

/// State of connecting to the node.
#[derive(Debug)]
enum ConnectState {
    /// No connect is in progress.
    Idle,
    /// The first connect since the node last worked is in progress: callers wait for it.
    Connecting,
    /// Connects fail, and the next one is scheduled: callers are refused with the reason.
    Down { reason: Arc<str>, since: Instant },
    /// Nothing is sent any more: the client was closed, or the node left the cluster. Callers are
    /// refused with this reason.
    Closed(NotSent),
}

impl Node {
    pub(crate) fn new(address: Address, context: &Arc<ClientContext>) -> Arc<Self> {
        Arc::new(Self {
            name: address.to_string().into(),
            address,
            context: Arc::clone(context),
            counters: Counters::default(),
            stop: context.stop.child_token(),
            state: Mutex::new(NodeState {
                pool: Pool::new(&context.config),
                connect: ConnectState::Idle,
                failures: 0,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> &Config {
        &self.context.config
    }

    fn queue_bound(&self) -> Load {
        Load {
            commands: self.config().queue_commands,
            bytes: self.config().queue_bytes,
        }
    }

    /// Accepts all groups of one call, or none if the queue has no room. Never blocks.
    ///
    /// An empty queue accepts a call larger than its bounds: otherwise the call could never be
    /// sent.
    pub(crate) fn submit(self: &Arc<Self>, groups: impl Iterator<Item = CallGroup>, total: Load) {
        let mut state = self.state();
        state.pool.drop_abandoned(total, self.queue_bound());
        let waiting = state.pool.waiting();
        let refusal = match &state.connect {
            ConnectState::Closed(reason) => Some(reason.clone()),
            ConnectState::Down { reason, .. } if !state.pool.is_serving() => {
                Some(self.unavailable(reason))
            }
            _ if waiting.commands > 0 && !waiting.fits(total, self.queue_bound()) => {
                count(&self.counters.overloads, total.commands);
                Some(NotSent::Overloaded {
                    node: Arc::clone(&self.name),
                })
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            drop(state);
            groups.for_each(|group| group.refuse(reason.clone()));
            return;
        }
        if state.pool.assign(groups, total) == Demand::Another {
            self.start_connecting(&mut state);
        }
    }

    /// Returns whether the node refuses groups because it is unreachable.
    pub(crate) fn is_down(&self) -> bool {
        let state = self.state();
        matches!(state.connect, ConnectState::Down { .. }) && !state.pool.is_serving()
    }

    /// Returns whether no connection serves although one is needed.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.state();
        matches!(
            state.connect,
            ConnectState::Connecting | ConnectState::Down { .. }
        ) && !state.pool.is_serving()
    }

    /// Returns for how long all attempts to connect have failed.
    pub(crate) fn down_for(&self) -> Duration {
        match self.state().connect {
            ConnectState::Down { since, .. } => since.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Returns the counts of what the connections did.
    pub(crate) fn stats(&self) -> Stats {
        let state = self.state();
        let waiting = state.pool.waiting().commands;
        let oldest_pending = state.pool.oldest_pending();
        drop(state);
        self.counters.snapshot(waiting, oldest_pending)
    }

    /// Refuses queued and later groups, and ends the connections.
    pub(crate) fn close(&self) {
        self.refuse_all(NotSent::Closed);
        self.stop.cancel();
    }

    /// Refuses unwritten and later groups, so that they go to the new owners. Connections end after
    /// their commands in flight are answered, or at [`Node::end`].
    pub(crate) fn leave(&self) {
        self.refuse_all(NotSent::NodeLeft {
            node: Arc::clone(&self.name),
        });
        self.state().pool.apply_to_all(LinkEvent::Replaced);
    }

    /// Ends the connections of a node that has left.
    pub(crate) fn end(&self) {
        self.stop.cancel();
    }

    fn refuse_all(&self, reason: NotSent) {
        let mut state = self.state();
        state.connect = ConnectState::Closed(reason.clone());
        let waiting = state.pool.drain_unwritten();
        drop(state);
        for group in waiting {
            group.refuse(reason.clone());
        }
    }

    fn unavailable(&self, reason: &Arc<str>) -> NotSent {
        NotSent::Unavailable {
            node: Arc::clone(&self.name),
            reason: Arc::clone(reason),
        }
    }
}

impl LinkOwner for Arc<Node> {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn config(&self) -> &Config {
        Node::config(self)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn take_groups(
        &self,
        report: &LinkReport<'_>,
        groups: &mut Vec<CallGroup>,
    ) -> Result<(), CloseReason> {
        let mut state = self.state();
        if state.pool.take_groups(report, groups)? == Demand::Another {
            self.start_connecting(&mut state);
        }
        Ok(())
    }

    /// A new connection is tried if no other link serves. Its success tells a stuck connection from
    /// a stuck server.
    fn report(&self, link: LinkId, event: LinkEvent) {
        let mut state = self.state();
        if state.pool.apply(link, event) == LinkEffect::ReturnQueue && !state.pool.is_serving() {
            self.start_connecting(&mut state);
        }
    }

    /// The decision and the choice of a connection for a group are made under one lock, so no group
    /// is placed on it afterwards.
    fn may_close(&self, link: LinkId) -> bool {
        self.state()
            .pool
            .retire_idle(link, Node::config(self).min_connections)
    }

    fn add_left_behind(&self, batch: Batch) {
        self.context.left_behind.add(batch);
    }

    fn detach(&self, link: LinkId, reason: &Arc<str>) {
        Node::detach(self, link, reason);
    }

    /// There will be no other connection, so callers are refused. The program ends, so this is no
    /// loss.
    fn on_runtime_end(&self, link: LinkId, reason: &Arc<str>) {
        self.close();
        Node::detach(self, link, reason);
    }
}
