//! One connection to a Redis server: how it is opened, and the task that carries commands and replies.

pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod handshake;
pub(crate) mod socket;
pub(crate) mod tls;
