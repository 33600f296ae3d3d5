//! Accepting connections, whatever the system thinks of it.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, warn};

/// Wait after a failure: when file descriptors are used up, trying again at once only burns the CPU.
const PAUSE: Duration = Duration::from_millis(50);

/// The next connection; none after a failure, which has been logged and waited out.
pub(crate) async fn next<T>(accept: impl Future<Output = io::Result<T>>) -> Option<T> {
    match accept.await {
        Ok(accepted) => Some(accepted),
        Err(error) if is_of_the_peer(&error) => {
            debug!(%error, "a connection was gone before it was accepted");
            None
        }
        Err(error) => {
            warn!(%error, "accepting connections fails");
            sleep(PAUSE).await;
            None
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}
