//! Why a server does not start.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the server did not start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A port or socket cannot be had.
    #[error("the {what} listener cannot have {address}: {source}")]
    Bind {
        /// Whose.
        what: &'static str,
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Redis cannot be used.
    #[error("timed out waiting for Redis connection to {address}: {reason}")]
    Redis {
        /// Its address, without credentials.
        address: String,
        /// The last failure.
        reason: String,
    },
    /// The configuration's folder does not exist.
    #[error("RUNTIME_ROOT {} does not exist; create it, or set FORCE_START_WITHOUT_INITIAL_CONFIG=true", path.display())]
    NoRoot {
        /// The folder.
        path: PathBuf,
    },
    /// The store of the workflows cannot be used.
    #[error(
        "the workflows cannot use {store}: {source}; name a folder of this server with TIDEGATE_DATA_DIR, or set TIDEGATE_HTTP_ADDR \
         to nothing for rate limits alone"
    )]
    Workflows {
        /// Where it is, without credentials.
        store: String,
        /// What it said.
        source: tidegate_workflow::StoreError,
    },
    /// The system refused a thread, a runtime or a socket.
    #[error("the system refused what a server needs: {0}")]
    System(#[from] io::Error),
}
