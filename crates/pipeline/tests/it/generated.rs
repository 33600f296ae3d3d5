//! Loads and bytes that no person chose, and what holds for all of them.

mod foreign;
mod mutation;
mod properties;
mod splitter;
