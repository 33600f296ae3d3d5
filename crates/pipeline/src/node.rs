//! One Redis server: its connections, and the groups that wait for one.

pub(crate) mod link;
#[cfg(test)]
mod model;
mod pool;
mod queue;
pub(crate) mod selection;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::batch::load::Load;
use crate::call::group::Group;
use crate::call::lock::{Mutex, MutexGuard};
use crate::config::Config;
use crate::config::address::Address;
use crate::link::connection::Connection;
use crate::link::context::ClientContext;
use crate::link::handshake::{self, Greeted, Proof};
use crate::node::link::{Gone, LinkId, Standing, Turn};
use crate::node::pool::{Demand, Pool};
use crate::outcome::NotSent;
use crate::stats::{Counters, Stats, count};

/// A connection that breaks sooner than this counts as a failed attempt, so that a server which accepts and then closes
/// is not hammered.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// One Redis server.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
    pub(crate) context: Arc<ClientContext>,
    pub(crate) counters: Counters,
    /// A child of the client's: a node can be closed while the client goes on.
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pool: Pool,
    reach: Reach,
    /// Attempts that failed since a connection last lived long enough.
    failures: u32,
}

/// Whether a connect is under way, and what is known of the node.
#[derive(Debug)]
enum Reach {
    /// No connect is under way.
    Settled,
    /// The first connect since the node last worked is under way: callers wait for it.
    Connecting,
    /// Connects fail, the next one is scheduled: callers are refused with the reason.
    Down { reason: Arc<str>, since: Instant },
    /// The client was closed.
    Closed,
}

impl Node {
    pub(crate) fn new(address: Address, context: &Arc<ClientContext>) -> Arc<Self> {
        Arc::new(Self {
            name: address.to_string().into(),
            address,
            context: Arc::clone(context),
            counters: Counters::default(),
            stop: context.stop.child_token(),
            state: Mutex::new(State { pool: Pool::new(&context.config), reach: Reach::Settled, failures: 0 }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> &Config {
        &self.context.config
    }

    fn queue_bound(&self) -> Load {
        Load { commands: self.config().queue_commands, bytes: self.config().queue_bytes }
    }

    /// Takes the groups of one call: all of them, or none when the queue has no room. Never blocks.
    ///
    /// A call beyond the queue's bounds is taken when nothing waits: else it could never be sent.
    pub(crate) fn submit(self: &Arc<Self>, groups: impl Iterator<Item = Group>, total: Load) {
        let mut state = self.state();
        state.pool.drop_abandoned(total, self.queue_bound());
        let waiting = state.pool.waiting();
        let refusal = match &state.reach {
            Reach::Closed => Some(NotSent::Closed),
            Reach::Down { reason, .. } if !state.pool.is_serving() => Some(self.unavailable(reason)),
            _ if waiting.commands > 0 && !waiting.fits(total, self.queue_bound()) => {
                Some(NotSent::Overloaded { node: Arc::clone(&self.name) })
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            drop(state);
            groups.for_each(|group| group.refuse(reason.clone()));
            return;
        }
        if state.pool.place(groups, total) == Demand::Another {
            self.start_connecting(&mut state);
        }
    }

    /// Gives a connection its queued groups and as many waiting ones as fit, after it gave back what is released.
    ///
    /// The connection is woken through the turn's waker when more arrive.
    ///
    /// # Errors
    /// The connection should close.
    pub(crate) fn take(self: &Arc<Self>, turn: &Turn<'_>, groups: &mut Vec<Group>) -> Result<(), Gone> {
        let mut state = self.state();
        if state.pool.take(turn, groups)? == Demand::Another {
            self.start_connecting(&mut state);
        }
        Ok(())
    }

    /// A connection has been silent for longer than it should. It gets no new work until it is trusted again; when no other
    /// one serves, a new one is tried, and whether that works tells a stuck connection from a stuck server.
    pub(crate) fn suspect(self: &Arc<Self>, id: LinkId) {
        let mut state = self.state();
        let link = state.pool.link(id);
        if !link.is_serving() {
            return;
        }
        link.standing = Standing::Suspect;
        let queue = std::mem::take(&mut link.queue);
        queue.iter().for_each(|group| link.load.remove(group.load()));
        state.pool.put_back(queue);
        if !state.pool.is_serving() {
            self.start_connecting(&mut state);
        }
    }

    /// A suspected connection has spoken. It may have been given up a moment ago: what comes now was on its way.
    pub(crate) fn trust(&self, id: LinkId) {
        let mut state = self.state();
        let link = state.pool.link(id);
        if matches!(link.standing, Standing::Suspect | Standing::GivenUp) {
            link.standing = Standing::Serving;
        }
    }

    /// Whether a connection that has been idle for long should close: it owes nothing, and the others are enough.
    ///
    /// The decision and the choice of a connection for a group are made under one lock, so no group is placed on it after.
    pub(crate) fn may_close(&self, id: LinkId) -> bool {
        let mut state = self.state();
        let serving = state.pool.serving().count();
        let link = state.pool.link(id);
        let idle = link.load == Load::default() && serving > self.config().min_connections;
        if idle {
            link.standing = Standing::Retiring;
        }
        idle
    }

    /// Replaces the connections: what they owe is still answered, what comes next goes over new ones.
    ///
    /// Young ones stay: many callers ask for this at the same time, and one round is enough.
    pub(crate) fn renew(self: &Arc<Self>) {
        let mut state = self.state();
        for link in state.pool.links.iter_mut().filter(|link| link.is_serving() && link.opened.elapsed() >= SHORT_LIFE)
        {
            link.standing = Standing::Retiring;
            link.wake();
        }
    }

    /// For how long all attempts to connect have failed.
    pub(crate) fn down_for(&self) -> Duration {
        match self.state().reach {
            Reach::Down { since, .. } => since.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// What the connections did so far.
    pub(crate) fn stats(&self) -> Stats {
        let waiting = self.state().pool.waiting().commands;
        self.counters.snapshot(waiting)
    }

    /// Refuses what waits and what will come, and ends the connections.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.reach = Reach::Closed;
        let waiting = state.pool.drain();
        drop(state);
        for group in waiting {
            group.refuse(NotSent::Closed);
        }
        self.stop.cancel();
    }

    fn unavailable(&self, reason: &Arc<str>) -> NotSent {
        NotSent::Unavailable { node: Arc::clone(&self.name), reason: Arc::clone(reason) }
    }

    fn start_connecting(self: &Arc<Self>, state: &mut State) {
        if matches!(state.reach, Reach::Settled) {
            state.reach = Reach::Connecting;
            let node = Arc::clone(self);
            self.context.spawn(self.stop.clone(), node.connect());
        }
    }

    /// Connects, again and again until it works. One at a time per node, so that a thousand callers cost one attempt.
    async fn connect(self: Arc<Self>) {
        loop {
            let failures = self.state().failures;
            if failures > 0 {
                tokio::time::sleep(backoff(self.config(), failures)).await;
            }
            let proof = self.state().proof_needed();
            self.config().connect_pace.turn().await;
            match handshake::open(&self.address, &self.context, proof).await {
                Ok(greeted) => return self.attach(greeted, proof),
                Err(reason) => {
                    count(&self.counters.connect_failures, 1);
                    if !self.keep_trying(&reason.into()) {
                        return;
                    }
                }
            }
        }
    }

    /// Records a failed attempt. False when the other connections of the node make another attempt needless.
    fn keep_trying(&self, reason: &Arc<str>) -> bool {
        let mut state = self.state();
        if matches!(state.reach, Reach::Closed) {
            return false;
        }
        state.failures = state.failures.saturating_add(1);
        if state.pool.is_serving() {
            state.reach = Reach::Settled;
            return false;
        }
        self.context.trouble.notify_one();
        let since = match state.reach {
            Reach::Down { since, .. } => since,
            _ => {
                warn!(node = %self.name, error = %reason, "redis is unavailable");
                Instant::now()
            }
        };
        state.reach = Reach::Down { reason: Arc::clone(reason), since };
        let waiting = state.pool.drain();
        drop(state);
        for group in waiting {
            group.refuse(self.unavailable(reason));
        }
        true
    }

    fn attach(self: &Arc<Self>, greeted: Greeted, proof: Proof) {
        let mut state = self.state();
        if matches!(state.reach, Reach::Closed) {
            return;
        }
        if matches!(state.reach, Reach::Down { .. }) {
            info!(node = %self.name, "redis is available again");
        }
        state.reach = Reach::Settled;
        if proof == Proof::Writes {
            // The server runs commands, so what suspects still owe is not coming.
            for link in state.pool.links.iter_mut().filter(|link| link.standing == Standing::Suspect) {
                link.standing = Standing::GivenUp;
                link.wake();
            }
        }
        let id = state.pool.open();
        count(&self.counters.opened, 1);
        let node = Arc::clone(self);
        let stop = self.stop.clone();
        let serve = async move {
            let mut connection = Connection::new(Arc::clone(&node), id, greeted);
            let reason = stop.run_until_cancelled(connection.serve()).await;
            let reason: Arc<str> = reason.map_or_else(|| "the client was closed".into(), Into::into);
            connection.fail(&reason);
            node.detach(id, &reason);
        };
        self.context.spawn_unbounded(serve);
    }

    /// Forgets a broken connection; the groups it had not taken wait for the next one.
    pub(crate) fn detach(self: &Arc<Self>, id: LinkId, reason: &Arc<str>) {
        count(&self.counters.closed, 1);
        let mut state = self.state();
        let link = state.pool.remove(id);
        if matches!(state.reach, Reach::Closed) {
            drop(state);
            for group in link.queue {
                group.refuse(NotSent::Closed);
            }
            return;
        }
        let wanted = link.standing != Standing::Retiring;
        if wanted {
            warn!(node = %self.name, error = %reason, "connection to redis lost");
            self.context.trouble.notify_one();
        }
        state.failures = match wanted && link.opened.elapsed() < SHORT_LIFE {
            true => state.failures.saturating_add(1),
            false => 0,
        };
        state.pool.put_back(link.queue);
        // With nobody waiting it reconnects all the same: the next caller should not pay for it.
        if !state.pool.is_serving() {
            self.start_connecting(&mut state);
        }
    }
}

impl State {
    /// What the next connection has to show: with suspects around it is their judge.
    fn proof_needed(&self) -> Proof {
        match self.pool.links.iter().any(|link| link.standing == Standing::Suspect) {
            true => Proof::Writes,
            false => Proof::Answers,
        }
    }
}

/// Full jitter: anything up to a bound that doubles with each failure, so that clients spread out after an outage.
fn backoff(config: &Config, failures: u32) -> Duration {
    let bound = config.backoff_min.saturating_mul(1 << (failures - 1).min(16)).min(config.backoff_max);
    bound.mul_f64(fastrand::f64())
}
