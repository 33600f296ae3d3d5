//! Traces of calls, as a collector receives them.

mod calls;
mod client;
mod collector;
mod contexts;
mod messages;
mod settings;
mod trouble;
mod workflows;
