//! Workflows, seen through the public door.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod actions;
#[macro_use]
mod contract;
#[macro_use]
mod support;

mod attempts;
mod crash;
mod defects;
mod formats;
mod gush;
mod homes;
mod layers;
mod limits;
mod model;
mod names;
mod notes;
mod operations;
mod queues;
mod races;
mod redis_store;
mod regression;
mod semantics;
mod sqlite_store;
mod terms;
mod trouble;
