//! The rules of rate limiting, seen through the public door.

mod answers;
mod configuration;
mod fixture;
mod layers;
mod local_cache;
mod lookup;
mod overrides;
mod properties;
mod seeing;
mod store;
mod take;
mod units;
