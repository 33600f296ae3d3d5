//! One connection to a Redis server: how it is opened, and the task that carries commands and
//! replies.

pub(crate) mod connection;
pub(crate) mod context;
mod deadlines;
pub(crate) mod dial;
pub(crate) mod handshake;
pub(crate) mod owner;
mod pending;
pub(crate) mod socket;
mod stagger;
pub(crate) mod state;
pub(crate) mod stats;
mod watchdog;
