//! The client side of the command line: address, credentials, requests and the model of answers.

pub(crate) mod address;
mod connect;
pub(crate) mod environment;
pub(crate) mod events;
pub(crate) mod exit;
pub(crate) mod model;
pub(crate) mod options;
pub(crate) mod pages;
pub(crate) mod remote;
pub(crate) mod which;
