//! The words of all layers: requests, units of time and windows.

mod request;
mod unit;
mod window;

pub use request::{Descriptor, Entry, Override, Request, Timestamp};
pub use unit::Unit;
pub(crate) use window::{Seconds, Window};
