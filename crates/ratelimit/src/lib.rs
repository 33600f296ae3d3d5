//! Envoy's rate limit semantics: configuration, lookup, counting and decisions.
//!
//! A [`Request`] has a domain and descriptors. A [`Limiter`] finds the limit of each descriptor in
//! the [`Configuration`], charges its counter in a [`Store`], returns a [`Response`], and records
//! the [`Facts`] for statistics.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::{Duration, Instant};
//! use tidegate_ratelimit::{
//!     Code, Configuration, Descriptor, Entry, Facts, Limiter, MemoryBounds, MemoryStore, Options, Request, SameDomain, Source, Store, Timestamp,
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
//! let limiter = Limiter::new(Store::Memory(MemoryStore::new(MemoryBounds::default())), Options::default());
//! limiter.configure(configuration);
//!
//! let entries = vec![Entry { key: "user".into(), value: "ada".into() }];
//! let descriptors = vec![Descriptor { entries, ..Descriptor::default() }];
//! let request = Request { domain: "shop".into(), descriptors, hits_addend: 0 };
//! for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
//!     let (deadline, mut facts) = (Instant::now() + Duration::from_secs(1), Facts::default());
//!     assert_eq!(limiter.check(&request, Timestamp(0), deadline, &mut facts).await?.code, expected);
//!     assert_eq!(facts.tallies[0].total_hits, 1);
//! }
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! Words: a *descriptor* is a list of *entries*, each with a key and a value. A *limit* allows a
//! number of *hits* per *unit*. A *window* is one unit of time, aligned to the Unix epoch. A
//! *counter* holds the hits of one descriptor in one window; its name is the *counter key*. A
//! *stats key* is the name of a limit in statistics.
//!
//! [`Limiter::check`] finds the limit of each descriptor, charges the counters in the store with
//! one call, and decides each descriptor from the count of its counter. Only the call to the store
//! waits.
//!
//! [`Limiter::acquire`] charges the same counters for jobs, before these run and in bulk: for as
//! many jobs as the limits have room for.
//!
//! [`Limiter::peek`] returns what a check would answer. A [`Sketch`] has the keys with the most
//! hits, and the latest refusals.
//!
//! [`Overrides`] pause or scale limits and keys for a time. An [`OverrideStore`] stores them for
//! all servers.
//!
//! **Invariant:** this crate is testable without a socket. It uses no protobuf, HTTP, environment,
//! clock or metrics library: time is an argument, and the server counts the facts.
//!
//! **Invariant:** a check writes no memory that other cores write, except the counters of a
//! [`MemoryStore`].

mod config;
mod limiter;
mod model;
mod overrides;
mod store;
mod tree;

pub use config::{
    ConfigError, Configuration, DefinedLimit, Domain, LimitLookup, Resource, ResourceDescriptor,
    ResourceLimit, SameDomain, Source,
};
pub use limiter::{
    AcquireFacts, AcquireRequest, Acquired, Caller, Code, CurrentLimit, Error, Exhausted,
    ExhaustedReason, Facts, KeyMinute, LimitDelta, LimitHeaders, Limiter, LocalCacheStats, Options,
    OverLimitKeys, Permits, Refusal, Refused, Remaining, Response, Sketch, Status, TopKey, Units,
    Usage,
};
pub use model::{Descriptor, Entry, Override, Request, Timestamp, Unit};
pub use overrides::{
    EffectKind, Factor, LimitOverride, OverrideEffect, OverrideError, OverrideStore,
    OverrideTarget, Overrides, Reach, RedisOverrides,
};
pub use store::{MemcacheStore, MemoryBounds, MemoryStore, RedisStore, Store, StoreError};
pub use tree::{Level, Limit, Node, Rate, StatsKey};
