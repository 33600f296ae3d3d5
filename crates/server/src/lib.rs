//! The server: the only crate that translates between the outside (protobuf, environment, files,
//! signals) and the other crates.
//!
//! Start reading at [`run`]. A call goes from `net` (sockets) through `rls` (messages) to the
//! limiter, and back. Cores share only the configuration and, without Redis, the counters.
//!
//! **Invariant:** this crate has no rules: no limit arithmetic, no look-up of limits, no RESP.

pub mod commands;
mod drain;
mod error;
mod net;
mod quote;
mod regular_file;
mod reload;
mod rls;
mod server;
pub mod settings;
mod supervise;
mod telemetry;
mod tls;
mod version;
mod workflows;

pub use drain::StopSignal;
pub use error::ServeError;
pub use net::listen::{Addresses, GrpcAddress};
pub use reload::xds::proto as discovery;
pub use rls::proto;
pub use server::run;
pub use supervise::{EndCause, UnexpectedEnd};
pub use telemetry::banner::{Encryption, LoadResult, Started};
pub use version::VERSION;
