//! Rate limits: what is asked and answered, on which store, and the files that the limits come from.

mod bad_input;
mod check;
mod envoy;
mod grpc;
mod json;
mod redis;
mod reload;
