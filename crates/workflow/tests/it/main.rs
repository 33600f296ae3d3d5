//! Workflows, seen through the public door.

#[macro_use]
mod contract;
mod gush;
mod model;
mod redis_store;
mod regression;
mod sqlite_store;
