//! The layer to the operating system: sockets, connections and threads.

pub(crate) mod accept;
pub(crate) mod authority;
pub(crate) mod bounds;
pub(crate) mod certificate_reload;
pub(crate) mod dial;
pub(crate) mod http;
pub(crate) mod listen;
pub(crate) mod movable_socket;
pub(crate) mod socket_file;
pub(crate) mod tls;
