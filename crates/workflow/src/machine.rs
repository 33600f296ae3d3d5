//! The state machine of a workflow: events, what they change, and what is written.

pub(crate) mod adopt;
mod attempt;
pub(crate) mod event;
mod operate;
pub(crate) mod outcome;
mod pending_change;
pub(crate) mod reachability;
mod rebase;
pub(crate) mod refusal;
pub(crate) mod transition;
pub(crate) mod workflow;
pub(crate) mod write_set;
