//! Sockets and connections: from `bind` to the end of the last connection.

pub(crate) mod accept;
pub(crate) mod connection;
pub(crate) mod cores;
pub(crate) mod http;
pub(crate) mod listen;
