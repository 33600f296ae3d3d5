//! Browser page: its files, and its sessions.

pub(crate) mod files;
pub(crate) mod session;
