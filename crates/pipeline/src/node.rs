//! One Redis server: its connections, and the groups that wait for one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::call::{Group, Load};
use crate::config::{Address, Config};
use crate::connection::Connection;
use crate::outcome::NotSent;
use crate::selection::{Offer, Selection};
use crate::shared::Shared;
use crate::socket::Socket;
use crate::stats::{Counters, Stats, count};
use crate::{handshake, selection};

/// A full connection whose oldest reply is younger than this is cheaper to wait for than another one is to open.
const SOFT_QUEUE_DELAY: Duration = Duration::from_millis(2);

/// A connection that breaks sooner than this counts as a failed attempt, so that a server which accepts and then closes
/// is not hammered.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// One Redis server.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Counters,
    /// A child of the client's: a node can be closed while the client goes on.
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Oldest first.
    links: Vec<Link>,
    next_link: u64,
    /// Groups no connection has room for, oldest first.
    waiting: VecDeque<Group>,
    waiting_load: Load,
    /// Kept to reuse its memory.
    offers: Vec<Offer>,
    rng: Rng,
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
    Down(Arc<str>),
    /// The client was closed.
    Closed,
}

/// The node's side of one connection.
#[derive(Debug)]
struct Link {
    id: LinkId,
    /// Groups the connection has not taken yet; they count in `load`.
    queue: VecDeque<Group>,
    /// Queued and in flight.
    load: Load,
    waker: Option<Waker>,
    /// When the oldest command in flight was written.
    oldest: Option<Instant>,
    /// Recent mean time between a write and its last reply.
    reply_time: Duration,
    opened: Instant,
    /// Takes no more groups, and closes when it owes nothing.
    retiring: bool,
}

/// Names one connection of a node, for as long as the node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkId(u64);

impl Node {
    pub(crate) fn new(address: Address, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            name: address.to_string().into(),
            address,
            shared: Arc::clone(shared),
            counters: Counters::default(),
            stop: shared.stop.child_token(),
            state: Mutex::new(State {
                links: Vec::new(),
                next_link: 0,
                waiting: VecDeque::new(),
                waiting_load: Load::default(),
                offers: Vec::new(),
                rng: Rng::new(),
                reach: Reach::Settled,
                failures: 0,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> &Config {
        &self.shared.config
    }

    fn cap(&self) -> Load {
        Load { commands: self.config().in_flight_commands, bytes: self.config().in_flight_bytes }
    }

    /// Takes the groups of one call: all of them, or none when the queue has no room. Never blocks.
    ///
    /// A call beyond the queue's bounds is taken when nothing waits: else it could never be sent.
    pub(crate) fn submit(self: &Arc<Self>, groups: impl Iterator<Item = Group>, total: Load) {
        let mut state = self.state();
        let waiting = state.waiting_load;
        let refusal = match &state.reach {
            Reach::Closed => Some(NotSent::Closed),
            Reach::Down(reason) if state.links.is_empty() => Some(self.unavailable(reason)),
            _ if waiting.commands > 0
                && (waiting.commands + total.commands > self.config().queue_commands
                    || waiting.bytes + total.bytes > self.config().queue_bytes) =>
            {
                Some(NotSent::Overloaded { node: Arc::clone(&self.name) })
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            drop(state);
            groups.for_each(|group| group.refuse(reason.clone()));
            return;
        }
        for group in groups {
            state.place(group, self.config().selection, self.cap());
        }
        if !state.waiting.is_empty() && state.wants_connection(self.config().max_connections) {
            self.start_connecting(&mut state);
        }
    }

    /// Gives a connection its queued groups and as many waiting ones as fit, after it gave back `released`.
    ///
    /// The connection is woken through `waker` when more arrive.
    ///
    /// # Errors
    /// [`Retired`] when the connection should close: it owes nothing and gets nothing more.
    pub(crate) fn take(self: &Arc<Self>, turn: Turn<'_>, groups: &mut Vec<Group>) -> Result<(), Retired> {
        let cap = self.cap();
        let mut state = self.state();
        let State { links, waiting, waiting_load, .. } = &mut *state;
        let link = links.iter_mut().find(|link| link.id == turn.link).expect("a link lives as long as its connection");
        link.load.remove(turn.released);
        link.oldest = turn.oldest;
        link.reply_time = turn.reply_time;
        groups.extend(link.queue.drain(..));
        if link.retiring {
            return if link.load == Load::default() { Err(Retired) } else { Ok(()) };
        }
        while let Some(group) = waiting.front() {
            let load = group.load();
            if !selection::accepts(link.load, load, cap) {
                break;
            }
            link.load.add(load);
            waiting_load.remove(load);
            groups.extend(waiting.pop_front());
        }
        match &mut link.waker {
            Some(waker) => waker.clone_from(turn.waker),
            none => *none = Some(turn.waker.clone()),
        }
        if !state.waiting.is_empty() && state.wants_connection(self.config().max_connections) {
            self.start_connecting(&mut state);
        }
        Ok(())
    }

    /// Whether a connection that has been idle for long should close: it owes nothing, and the others are enough.
    ///
    /// The decision and the choice of a connection for a group are made under one lock, so no group is placed on it after.
    pub(crate) fn may_close(&self, id: LinkId) -> bool {
        let mut state = self.state();
        let serving = state.links.iter().filter(|link| !link.retiring).count();
        let link = state.links.iter_mut().find(|link| link.id == id).expect("a link lives as long as its connection");
        let idle = link.load == Load::default() && serving > self.config().min_connections;
        link.retiring |= idle;
        idle
    }

    /// Replaces the connections: what they owe is still answered, what comes next goes over new ones.
    ///
    /// Young ones stay: many callers ask for this at the same time, and one round is enough.
    pub(crate) fn renew(self: &Arc<Self>) {
        let mut state = self.state();
        for link in state.links.iter_mut().filter(|link| link.opened.elapsed() >= SHORT_LIFE) {
            link.retiring = true;
            link.waker.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// What the connections did so far.
    pub(crate) fn stats(&self) -> Stats {
        let waiting = self.state().waiting_load.commands;
        self.counters.snapshot(waiting)
    }

    /// Refuses what waits and what will come, and ends the connections.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.reach = Reach::Closed;
        let waiting = state.take_waiting();
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
            self.shared.spawn(self.stop.clone(), node.connect());
        }
    }

    /// Connects, again and again until it works. One at a time per node, so that a thousand callers cost one attempt.
    async fn connect(self: Arc<Self>) {
        loop {
            let failures = self.state().failures;
            if failures > 0 {
                tokio::time::sleep(backoff(self.config(), failures)).await;
            }
            match handshake::open(&self.address, &self.shared).await {
                Ok(socket) => return self.attach(socket),
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
        if !state.links.is_empty() {
            state.reach = Reach::Settled;
            return false;
        }
        self.shared.trouble.notify_one();
        if !matches!(state.reach, Reach::Down(_)) {
            warn!(node = %self.name, error = %reason, "redis is unavailable");
        }
        state.reach = Reach::Down(Arc::clone(reason));
        let waiting = state.take_waiting();
        drop(state);
        for group in waiting {
            group.refuse(self.unavailable(reason));
        }
        true
    }

    fn attach(self: &Arc<Self>, socket: Socket) {
        let mut state = self.state();
        if matches!(state.reach, Reach::Closed) {
            return;
        }
        if matches!(state.reach, Reach::Down(_)) {
            info!(node = %self.name, "redis is available again");
        }
        state.reach = Reach::Settled;
        let id = LinkId(state.next_link);
        state.next_link += 1;
        state.links.push(Link {
            id,
            queue: VecDeque::new(),
            load: Load::default(),
            waker: None,
            oldest: None,
            reply_time: Duration::ZERO,
            opened: Instant::now(),
            retiring: false,
        });
        count(&self.counters.opened, 1);
        let node = Arc::clone(self);
        let stop = self.stop.clone();
        let serve = async move {
            let mut connection = Connection::new(Arc::clone(&node), id, socket);
            let reason = stop.run_until_cancelled(connection.serve()).await;
            let reason: Arc<str> = reason.map_or_else(|| "the client was closed".into(), Into::into);
            connection.fail(&reason);
            node.detach(id, &reason);
        };
        self.shared.spawn_unbounded(serve);
    }

    /// Forgets a broken connection; the groups it had not taken wait for the next one.
    fn detach(self: &Arc<Self>, id: LinkId, reason: &Arc<str>) {
        count(&self.counters.closed, 1);
        let mut state = self.state();
        let at = state.links.iter().position(|link| link.id == id).expect("a link is detached once");
        let link = state.links.remove(at);
        if matches!(state.reach, Reach::Closed) {
            drop(state);
            for group in link.queue {
                group.refuse(NotSent::Closed);
            }
            return;
        }
        if !link.retiring {
            warn!(node = %self.name, error = %reason, "connection to redis lost");
            self.shared.trouble.notify_one();
        }
        state.failures = match link.opened.elapsed() < SHORT_LIFE && !link.retiring {
            true => state.failures.saturating_add(1),
            false => 0,
        };
        for group in link.queue.into_iter().rev() {
            state.waiting_load.add(group.load());
            state.waiting.push_front(group);
        }
        // The others may be idle by now, and an idle connection looks for work only when woken.
        state.links.iter().filter_map(|link| link.waker.as_ref()).for_each(Waker::wake_by_ref);
        // With nobody waiting it reconnects all the same: the next caller should not pay for it.
        if state.links.is_empty() {
            self.start_connecting(&mut state);
        }
    }
}

/// The connection is no longer wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Retired;

/// What a connection tells its node at each turn.
pub(crate) struct Turn<'a> {
    pub(crate) link: LinkId,
    /// What was answered or dropped since the last turn.
    pub(crate) released: Load,
    pub(crate) oldest: Option<Instant>,
    pub(crate) reply_time: Duration,
    pub(crate) waker: &'a Waker,
}

impl State {
    /// Gives a group to a connection with room, or lets it wait for one.
    fn place(&mut self, group: Group, selection: Selection, cap: Load) {
        let load = group.load();
        // Groups already waiting go first: a newcomer that overtook them could starve a large one.
        if self.waiting.is_empty() {
            self.offers.clear();
            self.offers.extend(self.links.iter().map(|link| link.offer(load, cap)));
            if let Some(at) = selection.select(&self.offers, &mut self.rng) {
                return self.links[at].push(group, load);
            }
        }
        self.waiting_load.add(load);
        self.waiting.push_back(group);
    }

    fn wants_connection(&self, max: usize) -> bool {
        let full_and_slow = |link: &Link| link.oldest.is_some_and(|oldest| oldest.elapsed() > SOFT_QUEUE_DELAY);
        self.links.is_empty() || (self.links.len() < max && self.links.iter().all(full_and_slow))
    }

    fn take_waiting(&mut self) -> VecDeque<Group> {
        self.waiting_load = Load::default();
        std::mem::take(&mut self.waiting)
    }
}

impl Link {
    fn offer(&self, more: Load, cap: Load) -> Offer {
        let accepts = !self.retiring && selection::accepts(self.load, more, cap);
        let reply_time = u64::try_from(self.reply_time.as_nanos()).unwrap_or(u64::MAX);
        Offer { accepts, cost: (self.load.commands as u64).saturating_mul(reply_time.saturating_add(1)) }
    }

    fn push(&mut self, group: Group, load: Load) {
        self.load.add(load);
        self.queue.push_back(group);
        // A queue that was not empty has woken its connection already.
        if self.queue.len() == 1
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}

/// Full jitter: anything up to a bound that doubles with each failure, so that clients spread out after an outage.
fn backoff(config: &Config, failures: u32) -> Duration {
    let bound = config.backoff_min.saturating_mul(1 << (failures - 1).min(16)).min(config.backoff_max);
    bound.mul_f64(fastrand::f64())
}
