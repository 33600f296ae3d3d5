//! The protocol of Redis: RESP and the hash slots of keys.

mod command;
mod push;
mod reply;
pub(crate) mod resp;
mod scan;
mod slot;

pub(crate) use command::{push_array, push_bulk};
pub(crate) use push::Push;
pub use reply::{Protocol, Reply, ServerError};
pub(crate) use resp::{Decoder, Incoming};
pub use slot::slot_of;
pub(crate) use slot::{SLOTS, Slot};

use resp::Answer;
use scan::Scan;
