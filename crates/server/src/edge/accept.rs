//! Accepting connections, and what to do when that fails.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, warn};

/// The wait after a failure. Without it, a server without free file descriptors would try in a busy loop.
const PAUSE: Duration = Duration::from_millis(50);

/// The next connection. None after a failure, which has been logged and followed by a pause.
pub(crate) async fn next<T>(accept: impl Future<Output = io::Result<T>>) -> Option<T> {
    match accept.await {
        Ok(accepted) => Some(accepted),
        Err(error) if is_of_the_peer(&error) => {
            debug!(%error, "a connection was closed before it was accepted");
            None
        }
        Err(error) => {
            warn!(%error, "cannot accept connections");
            sleep(PAUSE).await;
            None
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}
