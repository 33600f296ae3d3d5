//! Certificates, keys and authorities in files: read at start, so that errors show early, and again
//! when they change.
//!
//! **Invariant:** no connection reads a file, and no core does. The configuration of connections is
//! replaced as a whole, and open connections keep the old one. The exception is `peer`: towards
//! another server, files are read at each connect, on a thread that only calls that server.

mod counts;
mod follow;
mod named_client;
mod named_file;
mod peer;
mod port;
mod store;
mod validity;

pub(crate) use counts::Counts;
pub(crate) use follow::{ReloadedFiles, WatchedFiles, follow};
pub(crate) use named_file::CertificateFileError;
pub use named_file::{NamedFile, Pair};
pub use peer::PeerTls;
pub(crate) use port::Identity;
pub use port::{Clients, PortTls};
pub use store::{StoreFiles, StoreTls};
