//! The page for people: its files, and how a browser signs in.

pub(crate) mod files;
pub(crate) mod session;
