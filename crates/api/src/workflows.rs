//! Workflows: handlers of the paths under `/v1/workflows`, a file for each kind of call.

pub(crate) mod act;
pub(crate) mod bulk;
pub(crate) mod create;
pub(crate) mod definition;
pub(crate) mod failures;
pub(crate) mod graph;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod selection;
pub(crate) mod show;
pub(crate) mod warnings;
