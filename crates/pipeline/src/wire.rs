//! What Redis fixes: the RESP protocol and the hash slots of keys.

pub(crate) mod resp;
pub(crate) mod slot;
