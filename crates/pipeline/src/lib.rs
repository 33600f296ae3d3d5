//! A pipelining engine for Redis: one round trip per node, whatever a call touches.
//!
//! A [`Batch`] is the ordered commands of one caller. [`Client::send`] writes them together with whatever other callers
//! send at that moment, on few connections, and answers with one [`Outcome`] per command, in the caller's order. An
//! outcome says whether the server ran the command, did not run it, or may have run it, so that a caller can retry
//! without ever doing a thing twice.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::{Duration, Instant};
//! use tidegate_pipeline::{Arg, Batch, Client, Config};
//!
//! let client = Client::new(Config::single("127.0.0.1:6379".parse()?))?;
//! let mut batch = Batch::new();
//! batch.unit().command("INCRBY", &[Arg::Key(b"visits"), Arg::Integer(1)]).command(
//!     "EXPIRE",
//!     &[Arg::Key(b"visits"), Arg::Integer(60)],
//! );
//! let outcomes = client.send(batch, Instant::now() + Duration::from_secs(1)).await;
//! println!("visits: {}", outcomes[0].integer()?);
//! # Ok(()) }
//! ```
//!
//! Words: a *unit* is a run of commands that belong together on one node; a *batch* is a caller's units; commands are
//! *in flight* between the write and their reply.
//!
//! **Invariant:** the only code that knows RESP, slots and sockets. It knows nothing of rate limits, workflows or the
//! environment, and has no method per Redis command.

mod batch;
mod call;
mod client;
mod cluster;
mod config;
mod connection;
mod discovery;
mod handshake;
mod link;
mod node;
mod outcome;
mod resend;
mod resp;
mod route;
mod selection;
mod shared;
mod slot;
mod socket;
mod stats;
#[cfg(feature = "test-util")]
pub mod test_util;
mod tls;
mod topology;

pub use batch::{Arg, Batch, UnitBuilder};
pub use client::Client;
pub use config::{Address, Config, ConfigError, Credentials, CredentialsProvider, Parallelism, Servers};
pub use outcome::{CommandError, NotSent, Outcome, Rejected, Rejection, ServerError, Unknown};
pub use resp::{Protocol, Reply};
pub use route::Grouping;
pub use selection::{Fill, Selection};
pub use stats::Stats;
pub use tls::{ClientCertificate, Tls, TlsError, Verification};
