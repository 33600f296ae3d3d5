//! How a node gets its connections: one attempt at a time, with longer waits after failures.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tracing::{info, warn};

use super::{ConnectState, Node, State};
use crate::call::group::Group;
use crate::config::Servers;
use crate::link::connection::Connection;
use crate::link::handshake::{self, Probe, ReadySocket};
use crate::link::owner::LinkId;
use crate::link::state::{Effect, Event};
use crate::stats::count;

/// A connection that breaks sooner than this counts as a failed attempt, so that a server which accepts and then closes
/// is not hammered.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// A connect that takes longer than this is most likely to a server that is gone.
const LONG_CONNECT: Duration = Duration::from_millis(250);

impl Node {
    pub(super) fn start_connecting(self: &Arc<Self>, state: &mut State) {
        if matches!(state.connect, ConnectState::Idle) {
            state.connect = ConnectState::Connecting;
            let node = Arc::clone(self);
            self.context.spawn(self.stop.clone(), node.connect());
        }
    }

    /// Connects, again and again until it works. One at a time per node, so that a thousand callers cost one attempt.
    async fn connect(self: Arc<Self>) {
        loop {
            let failures = self.state().failures;
            if failures > 0 {
                tokio::time::sleep(self.config().backoff(failures)).await;
            }
            let probe = self.probe_needed();
            self.config().connect_pace.permit().await;
            match self.open(probe).await {
                Ok(greeted) => return self.attach(greeted, probe),
                Err(reason) => {
                    count(&self.counters.connect_failures, 1);
                    if !self.keep_trying(&reason.into()) {
                        return;
                    }
                }
            }
        }
    }

    /// Opens a connection. A server that takes long to answer may have been replaced, so owners are asked for meanwhile.
    async fn open(&self, probe: Probe) -> Result<ReadySocket, String> {
        let mut attempt = pin!(handshake::open(&self.address, &self.context, probe));
        loop {
            match timeout(LONG_CONNECT, &mut attempt).await {
                Ok(opened) => return opened,
                Err(_) => self.context.refresh_wanted.notify_one(),
            }
        }
    }

    /// What the next connection has to show. While a reply is overdue, it decides whether the server or a connection is
    /// silent.
    fn probe_needed(&self) -> Probe {
        if self.state().pool.has_silent() {
            Probe::Write
        } else {
            Probe::Ping
        }
    }

    /// Records a failed attempt. False when the other connections of the node make another attempt needless.
    fn keep_trying(&self, reason: &Arc<str>) -> bool {
        let mut state = self.state();
        if matches!(state.connect, ConnectState::Closed(_)) {
            return false;
        }
        state.failures = state.failures.saturating_add(1);
        if state.pool.is_serving() {
            state.connect = ConnectState::Idle;
            return false;
        }
        self.context.refresh_wanted.notify_one();
        if self.may_still_answer(&state) {
            return true;
        }
        let waiting = self.mark_down(&mut state, reason);
        drop(state);
        for group in waiting {
            group.refuse(self.unavailable(reason));
        }
        true
    }

    /// Whether a single server is silent for less time than its callers wait: a pause of it must not fail them.
    fn may_still_answer(&self, state: &State) -> bool {
        let is_single = matches!(self.config().servers, Servers::Single(_));
        is_single
            && state.pool.has_silent()
            && state.pool.oldest_owed() < self.config().silence_timeout
    }

    /// From now on callers are refused with the reason. Returns the groups that wait.
    fn mark_down(
        &self,
        state: &mut State,
        reason: &Arc<str>,
    ) -> impl Iterator<Item = Group> + use<> {
        let since = match state.connect {
            ConnectState::Down { since, .. } => since,
            _ => {
                warn!(node = %self.name, error = %reason, "redis is unavailable");
                Instant::now()
            }
        };
        state.connect = ConnectState::Down {
            reason: Arc::clone(reason),
            since,
        };
        state.pool.drain()
    }

    /// Takes a new connection into the pool, and starts its task.
    fn attach(self: &Arc<Self>, greeted: ReadySocket, probe: Probe) {
        let mut state = self.state();
        match state.connect {
            ConnectState::Closed(_) => return,
            ConnectState::Down { .. } => info!(node = %self.name, "redis is available again"),
            ConnectState::Idle | ConnectState::Connecting => {}
        }
        state.connect = ConnectState::Idle;
        if probe == Probe::Write {
            state.pool.apply_to_all(Event::OtherLinkAnswered);
        }
        let id = state.pool.open();
        count(&self.counters.opened, 1);
        self.context
            .spawn_unbounded(Arc::clone(self).serve(id, greeted));
    }

    /// Runs a connection until it ends.
    async fn serve(self: Arc<Self>, id: LinkId, greeted: ReadySocket) {
        let mut connection = Connection::new(Arc::clone(&self), id, greeted);
        let reason = self.stop.run_until_cancelled(connection.serve()).await;
        let reason: Arc<str> = reason.map_or_else(|| "the client was closed".into(), Into::into);
        connection.fail(&reason);
        self.detach(id, &reason);
    }

    /// Removes a connection that has ended; the groups it had not taken wait for the next one.
    pub(super) fn detach(self: &Arc<Self>, id: LinkId, reason: &Arc<str>) {
        count(&self.counters.closed, 1);
        let mut state = self.state();
        let (link, effect) = state.pool.remove(id);
        if let ConnectState::Closed(reason) = &state.connect {
            let reason = reason.clone();
            drop(state);
            for group in link.queue {
                group.refuse(reason.clone());
            }
            return;
        }
        let lost = effect == Effect::ReportLoss;
        if lost {
            warn!(node = %self.name, error = %reason, "connection to redis lost");
            self.context.refresh_wanted.notify_one();
        }
        state.failures = if lost && link.opened.elapsed() < SHORT_LIFE {
            state.failures.saturating_add(1)
        } else {
            0
        };
        state.pool.put_back(link.queue);
        // It reconnects even when no caller waits, so that the next caller need not wait for it.
        if !state.pool.is_serving() {
            self.start_connecting(&mut state);
        }
    }

    /// Replaces the connections: what is in flight is still answered, and later commands go over new connections.
    ///
    /// Young ones stay: many callers ask for this at the same time, and one round is enough.
    pub(crate) fn renew(&self) {
        self.state().pool.replace_older_than(SHORT_LIFE);
    }
}
