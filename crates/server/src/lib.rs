//! The server: the only place where outside words become inside words.

pub mod proto;
pub mod settings;
