//! Why a server does not start, or does not go on.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::supervise::UnexpectedEnd;

/// Why the server did not start, or did not go on.
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
        /// What to do, after a semicolon; empty where the cause says it.
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
    /// DNS does not tell where the servers of memcached are.
    #[error("Unable to fetch servers from SRV: {reason} (MEMCACHE_SRV={name})")]
    Srv {
        /// The name.
        name: String,
        /// What went wrong.
        reason: String,
    },
    /// The configuration's folder does not exist.
    #[error("RUNTIME_ROOT {} does not exist; create it, or set FORCE_START_WITHOUT_INITIAL_CONFIG=true", path.display())]
    NoRoot {
        /// The folder.
        path: PathBuf,
    },
    /// Certificates could be read when the settings were, and cannot be used any more.
    #[error("certificates cannot be used: {reasons}")]
    Certificates {
        /// Each file, by its variable, with what is wrong.
        reasons: String,
    },
    /// The process may open so few files that clients would find none left.
    #[error(
        "{allowed} open files are allowed, and this server needs at least {least}: raise the hard limit on open files (ulimit -H -n), \
         or lower TIDEGATE_CORES"
    )]
    Files {
        /// How many it may open.
        allowed: usize,
        /// How many it must be allowed.
        least: usize,
    },
    /// A part of the server ended although nobody asked it to, while the server ran.
    #[error("{0}")]
    Ended(UnexpectedEnd),
    /// The system refused a thread, a runtime or a socket.
    #[error("the operating system refused a thread, a runtime or a socket: {0}")]
    System(#[from] io::Error),
}

/// The system's words for the most common cause, without the number of the error.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use".to_owned(),
        _ => error.to_string(),
    }
}
