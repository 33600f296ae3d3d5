//! The commands: a file for each noun, the verbs of Gush, and examples for the help.

pub(crate) mod context;
pub(crate) mod examples;
pub(crate) mod failure;
pub(crate) mod gush;
pub(crate) mod handler;
pub(crate) mod job;
pub(crate) mod limit;
pub(crate) mod queue;
pub(crate) mod status;
mod watch;
pub(crate) mod worker;
pub(crate) mod workflow;
