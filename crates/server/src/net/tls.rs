//! TLS handshakes of all ports, on one thread.
//!
//! A handshake takes a processor for up to some milliseconds, a thousand times as long as a
//! decision, and clients choose the number of handshakes. So neither the cores nor the control
//! thread make them, and no call waits for a handshake. A connection takes its slot in the bounds
//! of its port before its handshake. After the handshake it moves to the thread that serves it.

mod handshakes;
mod port_acceptors;
mod refusal;

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::bounds::{ClientNetwork, CloseReason, ConnectionSlot};
use super::movable_socket::{DetachedSocket, MovableSocket, TlsSocket};
use crate::base::log_throttle::LogThrottle;
use crate::base::sync::lock;
use crate::supervise::runtime::ThreadRuntime;
use crate::supervise::{Supervisor, failpoint};
use crate::tls::PortIdentity;
use handshakes::HandshakeTable;
pub(crate) use port_acceptors::PortTlsAcceptors;
use refusal::{HandshakeFailure, handshake_failure};

/// The name of the thread.
const THREAD_NAME: &str = "handshakes";
/// Time that a handshake may take. It has two or three messages, which a slow line brings in a
/// second.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum of handshakes in progress, of all ports. Each holds up to 64 KiB that its peer sent, so
/// all of them hold 64 MiB at most. If there are more, the oldest of the network that has the most
/// ends. So one network does not end handshakes of others.
const MAX_HANDSHAKES: usize = 1024;
/// Time that a handshake has for its end when the server drains.
const DRAIN_GRACE: Duration = Duration::from_secs(1);
/// Interval at which refused clients of a port are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The thread of handshakes. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Handshakes {
    runtime: Handle,
    table: Arc<Mutex<HandshakeTable>>,
    supervisor: Supervisor,
}

/// The TLS acceptor of a port. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct PortTlsAcceptor {
    port: &'static str,
    identity: PortIdentity,
    handshakes: Handshakes,
    refused: Arc<Mutex<LogThrottle>>,
}

/// A handshake in progress, until this is dropped.
struct HandshakeSlot {
    table: Arc<Mutex<HandshakeTable>>,
    network: ClientNetwork,
    number: u64,
    end: Arc<Notify>,
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        lock(&self.table).end(self.network, self.number);
    }
}

impl Handshakes {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub(crate) fn start(supervisor: &Supervisor) -> io::Result<Self> {
        let runtime = ThreadRuntime::new()?;
        let handle = runtime.handle();
        let stop = supervisor.stop.clone();
        supervisor.thread(THREAD_NAME, move || {
            runtime.block_on(failpoint::with(THREAD_NAME.into(), stop.cancelled_owned()))
        })?;
        let table = Arc::new(Mutex::new(HandshakeTable::new(MAX_HANDSHAKES)));
        Ok(Self {
            runtime: handle,
            table,
            supervisor: supervisor.clone(),
        })
    }

    /// Creates the acceptor of a port with the certificate and key of `identity`.
    pub(crate) fn acceptor(&self, port: &'static str, identity: PortIdentity) -> PortTlsAcceptor {
        PortTlsAcceptor {
            port,
            identity,
            handshakes: self.clone(),
            refused: Arc::default(),
        }
    }

    /// Begins a handshake, and ends another one if there are too many.
    fn begin(&self, network: ClientNetwork) -> HandshakeSlot {
        let (number, end) = lock(&self.table).begin(network);
        HandshakeSlot {
            table: self.table.clone(),
            network,
            number,
            end,
        }
    }
}

impl PortTlsAcceptor {
    /// Makes the handshake of a connection on the thread of handshakes. Then passes the connection
    /// to `admitted`, which runs on that thread.
    pub(crate) fn accept<F>(
        &self,
        socket: DetachedSocket,
        slot: ConnectionSlot,
        admitted: impl FnOnce(TlsSocket, ConnectionSlot) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let acceptor = self.clone();
        let handshake_slot = self.handshakes.begin(slot.network);
        let accept = async move {
            let secured = acceptor.handshake(socket, &slot, &handshake_slot).await;
            drop(handshake_slot);
            if let Some(secured) = secured {
                admitted(secured, slot).await;
            }
        };
        self.handshakes
            .supervisor
            .tasks
            .spawn_on(accept, &self.handshakes.runtime);
    }

    /// Makes the handshake. Returns `None` if it did not complete.
    async fn handshake(
        &self,
        socket: DetachedSocket,
        slot: &ConnectionSlot,
        handshake_slot: &HandshakeSlot,
    ) -> Option<TlsSocket> {
        let conn_state = &slot.conn_state;
        let movable_socket = MovableSocket::register(socket)
            .inspect_err(|error| warn!(port = self.port, %error, "cannot register a connection for its handshake"));
        let handshake = self.identity.acceptor().accept(movable_socket.ok()?);
        let drain = &self.handshakes.supervisor.drain;
        let ended = tokio::select! {
            ended = handshake => ended,
            () = sleep(HANDSHAKE_TIMEOUT) => {
                conn_state.count_close(CloseReason::NoRequest);
                return None;
            },
            () = conn_state.evicted() => return None,
            () = handshake_slot.end.notified() => {
                conn_state.count_close(CloseReason::Evicted);
                return None;
            },
            () = async { drain.cancelled().await; sleep(DRAIN_GRACE).await } => return None,
        };
        let detached =
            ended.and_then(|mut stream| stream.get_mut().0.detach().map(|()| Box::new(stream)));
        detached
            .map_err(|error| {
                conn_state.count_close(CloseReason::Handshake);
                self.refuse(&error);
            })
            .ok()
    }

    /// Logs the reason why a client was refused, at most once in [`LOG_INTERVAL`]: any client can
    /// reach the port, and must not fill the log.
    fn refuse(&self, error: &io::Error) {
        let reason = match handshake_failure(error) {
            HandshakeFailure::ClientClosed => {
                return debug!(port = self.port, %error, "a client left during its TLS handshake");
            }
            HandshakeFailure::Reason(reason) => reason,
        };
        let Some(suppressed) = lock(&self.refused).admit(LOG_INTERVAL) else {
            return debug!(
                port = self.port,
                reason, "a client is refused in its TLS handshake"
            );
        };
        warn!(
            port = self.port,
            suppressed, "a client is refused in its TLS handshake: {reason}"
        );
    }
}
