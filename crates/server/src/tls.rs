//! Certificates, keys and authorities in files: read at start, so that errors show early, and again
//! when they change.
//!
//! **Invariant:** no connection reads a file, and no core does. The configuration of connections is
//! replaced as a whole, and open connections keep the old one. The exception is `peer`: towards
//! another server, files are read at each connect, on a thread that only calls that server.

pub(crate) mod counts;
mod named_client;
pub(crate) mod named_file;
mod peer;
mod port;
mod store;
pub(crate) mod validity;
mod watched_files;

pub(crate) use counts::ReloadCounts;
pub(crate) use named_file::CertificateFileError;
pub use named_file::{CertificateAndKey, NamedFile};
pub use peer::PeerTls;
pub(crate) use port::PortIdentity;
pub use port::{ClientAuth, PortTls};
pub use store::{StoreTls, StoreTlsFiles};
pub(crate) use watched_files::{ReloadedFiles, WatchedFiles};
