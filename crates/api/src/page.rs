//! Browser page: its files, its search, and its sessions.

pub(crate) mod files;
pub(crate) mod search;
pub(crate) mod session;
