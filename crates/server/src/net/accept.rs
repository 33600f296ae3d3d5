//! Accepts connections, and handles failures of accept.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tracing::debug;

use super::bounds::{ClientNetwork, ConnectionSlot, ConnectionTable};

/// Delay after a failed accept. Without it, a server without free file descriptors would retry in a
/// busy loop.
const PAUSE: Duration = Duration::from_millis(50);
/// Idle time after which the kernel sends the first keepalive probe.
const SILENT: Duration = Duration::from_secs(60);
/// Interval of the keepalive probes while the peer does not answer.
const ASKED: Duration = Duration::from_secs(15);
/// Unanswered probes after which the kernel closes the connection. A host that vanished is noticed
/// after two minutes.
const ATTEMPTS: u32 = 4;
/// Time that a peer may leave sent bytes unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Accepts the next connection and returns it with its slot in the table. Returns `None` after a
/// failure, which is logged and followed by a delay. Also returns `None` if the table is full: the
/// connection is closed.
pub(crate) async fn next<T, O>(
    accept: impl Future<Output = io::Result<(T, O)>>,
    places: &Arc<ConnectionTable>,
) -> Option<(T, O, ConnectionSlot)>
where
    O: Into<ClientNetwork> + Copy,
{
    match accept.await {
        Ok((accepted, peer)) => Some((accepted, peer, places.admit(peer.into()).await?)),
        Err(error) if is_of_the_peer(&error) => {
            debug!(%error, "a connection was closed before it was accepted");
            None
        }
        Err(error) => {
            places.give_up_some(&error);
            sleep(PAUSE).await;
            None
        }
    }
}

/// Sets socket options: the kernel notices a vanished peer, and sends small answers at once.
pub(crate) fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(SILENT)
        .with_interval(ASKED)
        .with_retries(ATTEMPTS);
    // If the peer has closed already, the first read fails.
    let _ = stream.set_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected
    )
}
