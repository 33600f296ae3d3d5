//! Accepting connections, and what to do when that fails.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tracing::debug;

use super::bounds::{ClientNetwork, ConnectionSlot, ConnectionTable};

/// The wait after a failure. Without it, a server without free file descriptors would try in a busy loop.
const PAUSE: Duration = Duration::from_millis(50);
/// A peer that is silent for so long is asked by the kernel whether it is still there,
const SILENT: Duration = Duration::from_secs(60);
/// and again so often after no answer,
const ASKED: Duration = Duration::from_secs(15);
/// and is given up after so many. A host that vanished is gone after two minutes.
const ATTEMPTS: u32 = 4;
/// How long a peer may leave unacknowledged what was sent to it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// The next connection, and its place. None after a failure, which has been logged and followed by a pause, and when there is no
/// room: then the connection is closed.
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

/// Makes the kernel notice when the peer is gone, and send small answers at once.
pub(crate) fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(SILENT)
        .with_interval(ASKED)
        .with_retries(ATTEMPTS);
    // If the peer is gone already, the first read fails.
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
