//! The client side of the command line: address, credentials, requests and the model of answers.

pub(crate) mod address;
pub(crate) mod api_client;
pub(crate) mod complete;
mod connect;
pub(crate) mod contexts;
pub(crate) mod events;
pub(crate) mod model;
pub(crate) mod options;
pub(crate) mod pages;
pub(crate) mod workflow_ref;
