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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::bounds::{ClientNetwork, Closed, ConnectionSlot};
use super::movable_socket::{DetachedSocket, MovableSocket, Secured};
use super::runtime::ThreadRuntime;
use crate::supervise::{Supervisor, failpoint};
use crate::tls::Identity;
use handshakes::HandshakeTable;
pub(crate) use port_acceptors::PortTlsAcceptors;
use refusal::{Refusal, refusal};

/// The name of the thread.
const PART: &str = "handshakes";
/// Time that a handshake may take. It has two or three messages, which a slow line brings in a
/// second.
const LONGEST: Duration = Duration::from_secs(10);
/// Maximum of handshakes in progress, of all ports. Each holds up to 64 KiB that its peer sent, so
/// all of them hold 64 MiB at most. If there are more, the oldest of the network that has the most
/// ends. So one network does not end handshakes of others.
const MOST: usize = 1024;
/// Time that a handshake has for its end when the server drains.
const FAREWELL: Duration = Duration::from_secs(1);
/// Interval at which refused clients of a port are logged.
const SILENCE: Duration = Duration::from_secs(10);

/// The thread of handshakes. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Handshakes {
    runtime: Handle,
    under_way: Arc<Mutex<HandshakeTable>>,
    supervisor: Supervisor,
}

/// The TLS acceptor of a port. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct PortTlsAcceptor {
    port: &'static str,
    identity: Identity,
    handshakes: Handshakes,
    refused: Arc<Mutex<Refused>>,
}

/// Number of clients that were refused since the last log line.
#[derive(Debug, Default)]
struct Refused {
    logged: Option<Instant>,
    silent: u64,
}

/// A handshake in progress, until this is dropped.
struct HandshakeSlot {
    under_way: Arc<Mutex<HandshakeTable>>,
    origin: ClientNetwork,
    number: u64,
    end: Arc<Notify>,
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        lock(&self.under_way).end(self.origin, self.number);
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
        supervisor.thread(PART, move || {
            runtime.block_on(failpoint::with(PART.into(), stop.cancelled_owned()))
        })?;
        let under_way = Arc::new(Mutex::new(HandshakeTable::new(MOST)));
        Ok(Self {
            runtime: handle,
            under_way,
            supervisor: supervisor.clone(),
        })
    }

    /// Creates the acceptor of a port with the certificate and key of `identity`.
    pub(crate) fn gate(&self, port: &'static str, identity: Identity) -> PortTlsAcceptor {
        PortTlsAcceptor {
            port,
            identity,
            handshakes: self.clone(),
            refused: Arc::default(),
        }
    }

    /// Begins a handshake, and ends another one if there are too many.
    fn begin(&self, origin: ClientNetwork) -> HandshakeSlot {
        let (number, end) = lock(&self.under_way).begin(origin);
        HandshakeSlot {
            under_way: self.under_way.clone(),
            origin,
            number,
            end,
        }
    }
}

impl PortTlsAcceptor {
    /// Makes the handshake of a connection on the thread of handshakes. Then passes the connection
    /// to `admitted`, which runs on that thread.
    pub(crate) fn enter<F>(
        &self,
        socket: DetachedSocket,
        place: ConnectionSlot,
        admitted: impl FnOnce(Secured, ConnectionSlot) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let gate = self.clone();
        let turn = self.handshakes.begin(place.origin);
        let enter = async move {
            let secured = gate.handshake(socket, &place, &turn).await;
            drop(turn);
            if let Some(secured) = secured {
                admitted(secured, place).await;
            }
        };
        self.handshakes
            .supervisor
            .tasks
            .spawn_on(enter, &self.handshakes.runtime);
    }

    /// Makes the handshake. Returns `None` if it did not complete.
    async fn handshake(
        &self,
        socket: DetachedSocket,
        place: &ConnectionSlot,
        turn: &HandshakeSlot,
    ) -> Option<Secured> {
        let seat = &place.seat;
        let carrier = MovableSocket::register(socket)
            .inspect_err(|error| warn!(port = self.port, %error, "cannot register a connection for its handshake"));
        let handshake = self.identity.acceptor().accept(carrier.ok()?);
        let drain = &self.handshakes.supervisor.drain;
        let ended = tokio::select! {
            ended = handshake => ended,
            () = sleep(LONGEST) => {
                seat.count(Closed::Silent);
                return None;
            },
            () = seat.evicted() => return None,
            () = turn.end.notified() => {
                seat.count(Closed::Room);
                return None;
            },
            () = async { drain.cancelled().await; sleep(FAREWELL).await } => return None,
        };
        let left =
            ended.and_then(|mut stream| stream.get_mut().0.detach().map(|()| Box::new(stream)));
        left.map_err(|error| {
            seat.count(Closed::Handshake);
            self.refuse(&error);
        })
        .ok()
    }

    /// Logs the reason why a client was refused, at most once in [`LOG_INTERVAL`]: any client can
    /// reach the port, and must not fill the log.
    fn refuse(&self, error: &io::Error) {
        let reason = match refusal(error) {
            Refusal::Left => {
                return debug!(port = self.port, %error, "a client left during its TLS handshake");
            }
            Refusal::Because(reason) => reason,
        };
        let mut refused = lock(&self.refused);
        if refused.logged.is_some_and(|at| at.elapsed() < SILENCE) {
            refused.silent += 1;
            drop(refused);
            return debug!(
                port = self.port,
                reason, "a client is refused in its TLS handshake"
            );
        }
        let Refused { silent, .. } = std::mem::replace(
            &mut *refused,
            Refused {
                logged: Some(Instant::now()),
                silent: 0,
            },
        );
        drop(refused);
        warn!(
            port = self.port,
            suppressed = silent,
            "a client is refused in its TLS handshake: {reason}"
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is complete or absent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
