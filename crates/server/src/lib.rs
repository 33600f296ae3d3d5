//! The server: the only place where outside words (protobuf, environment, files, signals) become inside words.
//!
//! Start reading at [`run`]. A call goes `edge` (sockets) -> `rls` (messages) -> the limiter, and back; nothing it
//! needs is shared with another core but the configuration and, without Redis, the counters.
//!
//! **Invariant:** no rule lives here: no limit arithmetic, no lookup of limits, no RESP.

mod clock;
pub mod commands;
mod configure;
mod edge;
mod error;
mod operate;
mod rls;
mod server;
pub mod settings;
mod supervise;
mod workflows;

pub use edge::listen::{Addresses, GrpcAddress};
pub use error::ServeError;
pub use rls::proto;
pub use server::{Started, run};
