//! TODO: say what these modules are for.

mod servers;
mod shared_tables;
pub(crate) mod subscription;
