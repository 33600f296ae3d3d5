//! Envoy's rate limit service: converts messages. The rules are in the crate `ratelimit`.

pub(crate) mod bounds;
pub(crate) mod call;
pub(crate) mod cores;
pub(crate) mod grpc;
pub(crate) mod json;
pub(crate) mod overrides;
pub mod proto;
pub(crate) mod reload;
pub(crate) mod store;
pub(crate) mod text;
mod traced;
