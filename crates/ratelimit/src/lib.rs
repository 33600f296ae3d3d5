//! Envoy's rate limit semantics: configuration, lookup, counting and decisions.
//!
//! A [`Request`] names a domain and descriptors. A [`Limiter`] looks each descriptor up in the [`Configuration`], charges
//! its counter in a [`Store`], and answers with a [`Response`], and with [`Facts`] for whoever keeps statistics.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::{Duration, Instant};
//! use tidegate_ratelimit::{
//!     Code, Configuration, Descriptor, Entry, Limiter, MemoryStore, Options, Request, SameDomain, Source, Store, Timestamp,
//! };
//!
//! let text = "
//! domain: shop
//! descriptors:
//!   - key: user
//!     rate_limit: {unit: minute, requests_per_unit: 2}
//! ";
//! let source = Source { name: "shop.yaml".into(), text: text.into() };
//! let configuration = Configuration::load(&[source], SameDomain::Refuse).map_err(|errors| errors[0].to_string())?;
//! let limiter = Limiter::new(Store::Memory(MemoryStore::new(1_000_000)), Options::default());
//! limiter.configure(configuration);
//!
//! let entries = vec![Entry { key: "user".into(), value: "ada".into() }];
//! let descriptors = vec![Descriptor { entries, ..Descriptor::default() }];
//! let request = Request { domain: "shop".into(), descriptors, hits_addend: 0 };
//! for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
//!     let checked = limiter.check(&request, Timestamp(0), Instant::now() + Duration::from_secs(1)).await;
//!     assert_eq!(checked.response?.code, expected);
//! }
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! Words: a *descriptor* is a list of *entries*, each a key and a value; a *limit* allows so many *hits* per *unit*; a
//! *window* is one unit of time, aligned to the Unix epoch; a *counter* holds the hits of one descriptor in one window,
//! under its *counter key*; a *stats key* names a limit in statistics and nowhere else.
//!
//! A request goes one way: [`Limiter::check`] makes a plan (lookup, windows, counter keys), the store charges it in one
//! step, and what the counters then hold is attributed and answered. Only the step in the middle waits for anything.
//!
//! **Invariant:** testable without a socket; knows no protobuf, HTTP, environment, clock or metrics library. Time is an
//! argument; what happened is returned as facts, and the server counts them.

mod config;
mod limiter;
mod request;
mod response;
mod store;
mod tree;
mod window;

pub use config::{ConfigError, Configuration, SameDomain, Source};
pub use limiter::{Limiter, LocalCacheStats, Options, OverLimitKeys};
pub use request::{Descriptor, Entry, Override, Request, Timestamp};
pub use response::{Checked, Code, CurrentLimit, Error, Facts, LimitHeaders, Response, Status, Tally};
pub use store::{MemoryStore, RedisStore, Store, StoreError};
pub use tree::Unit;
