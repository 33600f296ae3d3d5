//! A pipelining engine for Redis, Redis Cluster, Sentinel and Valkey: one round trip per node,
//! however many keys a call has.
//!
//! A [`Batch`] is the ordered commands of one caller. [`Client::send`] writes it with the commands
//! of other callers of that moment, on few connections, and returns one [`Outcome`] per command, in
//! the caller's order. An outcome says whether the server ran the command, did not run it, or may
//! have run it. So a caller can retry without ever doing a thing twice.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = tidegate_pipeline::test_util::RedisServer::start().await;
//! # let address = server.address().to_string();
//! use std::time::{Duration, Instant};
//! use tidegate_pipeline::{Arg, Batch, Client, Config};
//!
//! let client = Client::new(Config::single(address.parse()?))?; // or Config::cluster(..), Config::sentinel(..)
//! let mut batch = Batch::new();
//! for page in ["/", "/about", "/"] {
//!     let key = Arg::Key(page.as_bytes());
//!     batch.unit().command("INCRBY", &[key, Arg::Integer(1)]).repeatable("EXPIRE", &[key, Arg::Integer(60)]);
//! }
//! let outcomes = client.send(batch, Instant::now() + Duration::from_secs(1)).await;
//! assert_eq!(outcomes[4].integer()?, 2); // the second visit of "/"
//! # Ok(()) }
//! ```
//!
//! A [`Subscriber`] receives published messages on separate connections, and reports when it may
//! have missed some.
//!
//! Words: a *unit* is a run of commands that belong together on one node; a *batch* is a caller's
//! units; commands are *in flight* between the write and their reply.
//!
//! **Invariant:** this crate is the only code that knows RESP, slots and sockets of Redis. It has
//! no knowledge of rate limits, workflows or the environment, and no method per Redis command.

mod batch;
mod call;
mod client;
mod cluster;
mod config;
mod link;
mod node;
mod outcome;
mod subscriber;
#[cfg(feature = "test-util")]
pub mod test_util;
mod wire;

pub use batch::{Arg, Batch, UnitBuilder};
pub use client::Client;
pub use config::{
    Address, AddressMap, ClientCertificate, Config, ConfigError, ConnectPace, Connector,
    Credentials, CredentialsProvider, Parallelism, Servers, Tls, TlsError, Verification,
};
pub use link::dial::dial;
pub use link::{Socket, Stats, dial_any};
pub use outcome::{CommandError, NotSent, Outcome, Rejected, Rejection, Unknown};
pub use subscriber::{Delivery, Refusal, Subscriber, SubscriberEvent, SubscriberOptions};
pub use wire::slot_of;
pub use wire::{Protocol, Reply, ServerError};
