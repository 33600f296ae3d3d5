//! The server: the only place that translates between the outside (protobuf, environment, files, signals) and the other crates.
//!
//! Start reading at [`run`]. A call goes from `edge` (sockets) through `rls` (messages) to the limiter, and back. The only things
//! that it shares with other cores are the configuration and, without Redis, the counters.
//!
//! **Invariant:** no rules here: no limit arithmetic, no lookup of limits, no RESP.

mod certificates;
pub mod commands;
mod configure;
mod drain;
mod edge;
mod error;
mod operate;
mod quote;
mod regular_file;
mod rls;
mod server;
pub mod settings;
mod supervise;
mod workflows;

pub use configure::xds::proto as discovery;
pub use drain::Stop;
pub use edge::listen::{Addresses, GrpcAddress};
pub use error::ServeError;
pub use operate::banner::{Encryption, Loaded, Started};
pub use rls::proto;
pub use server::run;
pub use supervise::{Ended, How};

/// The version of this build, as `0.1.0+4f2a91c`: what follows the `+` is the revision in git, which a source archive does not have.
pub const VERSION: &str = env!("BUILD_VERSION");
