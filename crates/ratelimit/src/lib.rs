//! Envoy's rate limit semantics: configuration, lookup, counting and decisions.
//!
//! **Invariant:** testable without a socket; knows no protobuf, HTTP, environment, clock or metrics library. Time is an
//! argument; what happened is returned as facts, and the server counts them.

mod answer;
mod attribution;
mod config;
mod counter_key;
mod decision;
mod limit;
mod limiter;
mod local_cache;
mod metadata;
mod plan;
mod request;
mod store;
mod tree;
mod window;

pub use config::{ConfigError, Configuration, SameDomain, Source};
pub use decision::{Checked, Code, CurrentLimit, Facts, LimitHeaders, Response, Status, Tally};
pub use limit::Unit;
pub use limiter::{Error, Limiter, Options, OverLimitKeys};
pub use local_cache::LocalCacheStats;
pub use request::{Descriptor, Entry, Override, Request, Timestamp};
pub use store::{MemoryStore, RedisStore, Store, StoreError};
