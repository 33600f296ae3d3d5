//! The server: the only place where outside words (protobuf, JSON, environment, signals) become inside words.
//!
//! Start reading at [`run`]. A call goes `connection` (or `http`) -> `grpc` -> `call` -> the limiter, and back; nothing it
//! needs is shared with another core but the configuration and, without Redis, the counters.
//!
//! **Invariant:** no rule lives here: no limit arithmetic, no lookup of limits, no RESP.

mod accept;
mod banner;
mod call;
pub mod cli;
mod clock;
mod connection;
mod cores;
mod grpc;
mod health;
mod http;
mod life;
mod listen;
mod logging;
mod metrics;
pub mod proto;
mod redis;
mod reload;
mod server;
pub mod settings;
mod span;
mod workflows;

pub use listen::{Addresses, GrpcAddress};
pub use server::{ServeError, Started, run};
