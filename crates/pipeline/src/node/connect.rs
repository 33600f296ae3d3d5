//! Opens the connections of a node: one attempt at a time, with longer delays after failures.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tracing::{info, warn};

use super::{ConnectState, Node, NodeState};
use crate::call::CallGroup;
use crate::config::Servers;
use crate::link::handshake;
use crate::link::{Connection, LinkEffect, LinkEvent, LinkId, Probe, ReadySocket, count};

/// Lifetime below which a connection counts as a failed attempt, so that a server which accepts and
/// then closes is not flooded with connects.
const MIN_CONNECTION_LIFETIME: Duration = Duration::from_secs(1);

/// Duration of a connect after which a refresh is requested: the server is probably gone.
const SLOW_CONNECT: Duration = Duration::from_millis(250);

impl Node {
    pub(super) fn start_connecting(self: &Arc<Self>, state: &mut NodeState) {
        if matches!(state.connect, ConnectState::Idle) {
            state.connect = ConnectState::Connecting;
            let node = self.clone();
            self.context.spawn(self.stop.clone(), node.connect());
        }
    }

    /// Connects until it works. One attempt at a time per node, so that a thousand callers cost one
    /// attempt.
    async fn connect(self: Arc<Self>) {
        loop {
            let failures = self.state().failures;
            if failures > 0 {
                tokio::time::sleep(self.config().backoff(failures)).await;
            }
            let probe = self.probe_needed();
            self.config().connect_pace.permit().await;
            match self.open(probe).await {
                Ok(ready) => return self.attach(ready, probe),
                Err(reason) => {
                    count(&self.counters.connect_failures, 1);
                    if !self.keep_trying(&reason.into()) {
                        return;
                    }
                }
            }
        }
    }

    /// Opens a connection. If the server takes long to answer it may have been replaced, so a
    /// refresh is requested in the meantime.
    async fn open(&self, probe: Probe) -> Result<ReadySocket, String> {
        let mut attempt = pin!(handshake::open(&self.address, &self.context, probe));
        loop {
            match timeout(SLOW_CONNECT, &mut attempt).await {
                Ok(opened) => return opened,
                Err(_) => self.context.refresh_wanted.notify_one(),
            }
        }
    }

    /// Returns the probe of the next connection. While a reply is overdue, the probe decides
    /// whether the server or one connection is silent.
    fn probe_needed(&self) -> Probe {
        if self.state().pool.has_silent() {
            Probe::Write
        } else {
            Probe::Ping
        }
    }

    /// Records a failed attempt. Returns false if the other connections of the node make another
    /// attempt unnecessary.
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

    /// Returns whether a single server is silent for less time than its callers wait: a short pause
    /// must not fail them.
    fn may_still_answer(&self, state: &NodeState) -> bool {
        let is_single = matches!(self.config().servers, Servers::Single(_));
        is_single
            && state.pool.has_silent()
            && state.pool.oldest_pending() < self.config().silence_timeout
    }

    /// Refuses callers with the reason from now on. Returns the queued groups.
    fn mark_down(
        &self,
        state: &mut NodeState,
        reason: &Arc<str>,
    ) -> impl Iterator<Item = CallGroup> + use<> {
        let since = match state.connect {
            ConnectState::Down { since, .. } => since,
            _ => {
                warn!(node = %self.name, error = %reason, "redis is unavailable");
                Instant::now()
            }
        };
        state.connect = ConnectState::Down {
            reason: reason.clone(),
            since,
        };
        state.pool.drain()
    }

    /// Adds a new connection to the pool, and starts its task.
    fn attach(self: &Arc<Self>, ready: ReadySocket, probe: Probe) {
        let mut state = self.state();
        match state.connect {
            ConnectState::Closed(_) => return,
            ConnectState::Down { .. } => info!(node = %self.name, "redis is available again"),
            ConnectState::Idle | ConnectState::Connecting => {}
        }
        state.connect = ConnectState::Idle;
        if probe == Probe::Write {
            state.pool.apply_to_all(LinkEvent::OtherLinkAnswered);
        }
        let id = state.pool.open();
        count(&self.counters.opened, 1);
        self.context.spawn_unbounded(self.clone().serve(id, ready));
    }

    /// Runs a connection until it ends.
    async fn serve(self: Arc<Self>, id: LinkId, ready: ReadySocket) {
        let mut connection = Connection::new(self.clone(), id, ready);
        let reason = self.stop.run_until_cancelled(connection.serve()).await;
        let reason: Arc<str> = reason.map_or_else(|| "the client was closed".into(), Into::into);
        connection.fail(&reason);
        self.detach(id, &reason);
    }

    /// Removes a connection that has ended. Groups that it had not taken are queued again.
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
        let lost = effect == LinkEffect::ReportLoss;
        if lost {
            warn!(node = %self.name, error = %reason, "connection to redis lost");
            self.context.refresh_wanted.notify_one();
        }
        state.failures = if lost && link.opened.elapsed() < MIN_CONNECTION_LIFETIME {
            state.failures.saturating_add(1)
        } else {
            0
        };
        state.pool.requeue(link.queue);
        // The node reconnects even if no caller waits, so that the next caller need not wait for
        // it.
        if !state.pool.is_serving() {
            self.start_connecting(&mut state);
        }
    }

    /// Replaces the connections: commands in flight are still answered, and later commands use new
    /// connections.
    ///
    /// Young connections stay: many callers request this at the same time, and one replacement is
    /// enough.
    pub(crate) fn renew(&self) {
        self.state()
            .pool
            .replace_older_than(MIN_CONNECTION_LIFETIME);
    }
}
