//! Certificates, keys and authorities in files: read at start, so that mistakes show early, and again when they change.
//!
//! **Invariant:** no connection reads a file, and no core does. What connections use is replaced as a whole, and connections that are
//! there keep what they began with.

mod counts;
mod follow;
mod named_client;
mod named_file;
mod port;
mod validity;

pub(crate) use counts::Counts;
pub(crate) use follow::{Followed, follow};
pub use named_file::NamedFile;
pub(crate) use named_file::Pair;
pub(crate) use port::Identity;
pub use port::{Clients, PortTls};
