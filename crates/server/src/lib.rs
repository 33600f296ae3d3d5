//! The server: the only crate that translates between the outside (protobuf, environment, files,
//! signals) and the other crates.
//!
//! Start reading at [`run`]. A call goes from `net` (sockets) through `rls` (messages) to the
//! limiter, and back. Cores share only the configuration and, without Redis, the counters.
//!
//! **Invariant:** this crate has no rules: no limit arithmetic, no look-up of limits, no RESP.

mod base;
pub mod commands;
mod net;
mod rls;
mod run;
pub mod settings;
mod supervise;
mod telemetry;
mod tls;
mod workflows;

pub use base::version::VERSION;
pub use net::listen::{Addresses, GrpcAddress};
pub use rls::proto;
pub use rls::reload::xds::proto as discovery;
pub use run::banner::{Encryption, LoadResult, Started};
pub use run::drain::StopSignal;
pub use run::server::run;
pub use supervise::error::ServeError;
pub use supervise::{EndCause, UnexpectedEnd};
