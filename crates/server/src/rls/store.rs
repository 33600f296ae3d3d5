//! TODO: say what these modules are for.

pub(crate) mod memcache;
pub(crate) mod memory;
pub(crate) mod redis;
