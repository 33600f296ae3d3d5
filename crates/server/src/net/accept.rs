//! Accepts connections, and handles failures of accept.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tracing::debug;

use super::bounds::{ClientNetwork, ConnectionSlot, ConnectionTable};
use super::movable_socket::{DetachedSocket, TlsSocket};
use super::tls::PortTlsAcceptor;
use crate::supervise::Supervisor;

/// Delay after a failed accept. Without it, a server without free file descriptors would retry in a
/// busy loop.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Idle time after which the kernel sends the first keepalive probe.
const KEEPALIVE_IDLE_TIME: Duration = Duration::from_secs(60);
/// Interval of the keepalive probes while the peer does not answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Unanswered probes after which the kernel closes the connection. A host that vanished is noticed
/// after two minutes.
const KEEPALIVE_PROBES: u32 = 4;
/// Time that a peer may leave sent bytes unacknowledged.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(60);

/// Counts one connection until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionCount(Arc<AtomicUsize>);

impl ConnectionCount {
    /// Counts a connection in `load`.
    pub(crate) fn count(load: &Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Relaxed);
        Self(load.clone())
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A connection on its way to the thread that serves it, registered with no runtime.
#[derive(Debug)]
pub(crate) enum AcceptedConnection {
    Plain(DetachedSocket),
    Secured(TlsSocket),
}

/// Passes every connection that `table` admits to `serve`, until the server drains. With an
/// acceptor, the TLS handshake comes first.
pub(crate) async fn accept_all<O, A, S>(
    accept: impl Fn() -> A,
    acceptor: Option<PortTlsAcceptor>,
    table: &Arc<ConnectionTable>,
    supervisor: &Supervisor,
    serve: impl Fn(AcceptedConnection, O, ConnectionSlot) -> S + Clone + Send + 'static,
) where
    O: Into<ClientNetwork> + Copy + Send + 'static,
    A: Future<Output = io::Result<(DetachedSocket, O)>>,
    S: Future<Output = ()> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            accepted = accept_next(accept(), table) => accepted,
            () = supervisor.drain.cancelled() => return,
        };
        let Some((socket, peer, slot)) = accepted else {
            continue;
        };
        match &acceptor {
            None => serve(AcceptedConnection::Plain(socket), peer, slot).await,
            Some(acceptor) => {
                let serve = serve.clone();
                acceptor.accept(socket, slot, move |secured, slot| {
                    serve(AcceptedConnection::Secured(secured), peer, slot)
                });
            }
        }
    }
}

/// Accepts the next connection and returns it with its slot in the table. Returns `None` after a
/// failure, which is logged and followed by a delay. Also returns `None` if the table is full: the
/// connection is closed.
async fn accept_next<O: Into<ClientNetwork> + Copy>(
    accept: impl Future<Output = io::Result<(DetachedSocket, O)>>,
    table: &Arc<ConnectionTable>,
) -> Option<(DetachedSocket, O, ConnectionSlot)> {
    match accept.await {
        Ok((socket, peer)) => Some((socket, peer, table.admit(peer.into()).await?)),
        Err(error) if is_peer_error(&error) => {
            debug!(%error, "a connection was closed before it was accepted");
            None
        }
        Err(error) => {
            table.on_accept_error(&error);
            sleep(RETRY_DELAY).await;
            None
        }
    }
}

/// Accepts the next connection of a port, and sets its options.
pub(crate) async fn accept_tcp(listener: &TcpListener) -> io::Result<(DetachedSocket, SocketAddr)> {
    let (stream, peer) = listener.accept().await?;
    set_socket_options(&stream);
    Ok((DetachedSocket::Tcp(stream.into_std()?), peer))
}

/// Sets socket options: the kernel notices a vanished peer, and sends small answers at once.
fn set_socket_options(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    // If the peer has closed already, the first read fails.
    let _ = stream.set_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
}

fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected
    )
}
