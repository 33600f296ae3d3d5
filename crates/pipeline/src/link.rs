//! One connection to a Redis server: how it is opened, and the task that carries commands and
//! replies.

mod connection;
mod context;
mod deadlines;
pub(crate) mod dial;
pub(crate) mod handshake;
mod owner;
mod pending;
mod socket;
mod stagger;
pub(crate) mod state;
mod stats;
mod watchdog;

pub(crate) use connection::Connection;
pub(crate) use context::ClientContext;
pub use dial::dial_any;
pub(crate) use handshake::{Login, Probe, ReadySocket};
pub(crate) use owner::{LinkId, LinkOwner, LinkReport};
pub use socket::Socket;
pub(crate) use state::{CloseReason, LinkEffect, LinkEvent, LinkState};
pub use stats::Stats;
pub(crate) use stats::{Counters, count};

use deadlines::Deadlines;
use pending::PendingReplies;
use stagger::{ReadStep, Stagger};
use watchdog::{Verdict, Watchdog};
