//! The protocol of Redis: RESP and the hash slots of keys.

pub(crate) mod command;
pub(crate) mod push;
pub(crate) mod reply;
pub(crate) mod resp;
mod scan;
pub(crate) mod slot;
