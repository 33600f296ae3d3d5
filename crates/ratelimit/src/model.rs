//! The words of all layers: requests, units of time and windows.

pub(crate) mod request;
pub(crate) mod unit;
pub(crate) mod window;
