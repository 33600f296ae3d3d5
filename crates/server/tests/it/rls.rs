//! Rate limits: what is asked and answered, on which store, and the files that the limits come from.

mod authority;
mod bad_input;
mod check;
mod drain;
pub(crate) mod envoy;
mod grpc;
mod json;
mod memcache;
mod overrides;
mod recorded;
mod redis;
mod reload;
