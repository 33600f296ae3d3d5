//! Workflows, seen through the public door.

#[macro_use]
mod contract;
mod sqlite_store;
