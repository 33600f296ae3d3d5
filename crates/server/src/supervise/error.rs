//! Errors that keep the server from starting, or end it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::supervise::UnexpectedEnd;

/// The reason why the server did not start, or ended.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A port or socket cannot be bound.
    #[error(
        "the {what} listener cannot bind {address}: {}{advice}",
        reason(source)
    )]
    Bind {
        /// Which listener.
        what: &'static str,
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
        /// Advice for the operator, after a semicolon. Empty if the cause says what to do.
        advice: String,
    },
    /// Redis cannot be used.
    #[error("timed out waiting for Redis connection to {address}: {reason}")]
    Redis {
        /// Its address, without credentials.
        address: String,
        /// The last failure.
        reason: String,
    },
    /// DNS does not return the servers of memcached.
    #[error("Unable to fetch servers from SRV: {reason} (MEMCACHE_SRV={name})")]
    Srv {
        /// The name.
        name: String,
        /// The reason of the failed look-up.
        reason: String,
    },
    /// The configuration folder does not exist.
    #[error("RUNTIME_ROOT {} does not exist; create it, or set FORCE_START_WITHOUT_INITIAL_CONFIG=true", path.display())]
    NoRoot {
        /// The folder.
        path: PathBuf,
    },
    /// Certificates that were readable when the settings were read cannot be used any more.
    #[error("certificates cannot be used: {reasons}")]
    Certificates {
        /// Each file, named by its variable, with its error.
        reasons: String,
    },
    /// The limit on open files is so low that no connection would be left for clients.
    #[error(
        "{allowed} open files are allowed, and this server needs at least {least}: raise the hard limit on open files (ulimit -H -n), \
         or lower TIDEGATE_CORES"
    )]
    Files {
        /// Open files that the process is allowed.
        allowed: usize,
        /// Open files that the server needs at least.
        least: usize,
    },
    /// A part of the server ended unexpectedly while the server ran.
    #[error("{0}")]
    Ended(UnexpectedEnd),
    /// The system refused a thread, a runtime or a socket.
    #[error("the operating system refused a thread, a runtime or a socket: {0}")]
    System(#[from] io::Error),
}

/// Describes the most common cause without the number of the system error.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use".to_owned(),
        _ => error.to_string(),
    }
}
