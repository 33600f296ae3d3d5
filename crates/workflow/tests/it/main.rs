//! Workflows, seen through the public door.

#[macro_use]
mod contract;
mod gush;
mod redis_store;
mod sqlite_store;
