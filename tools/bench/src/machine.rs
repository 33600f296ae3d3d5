//! Servers and their stores on this machine, their processes, and the cores they run on.

mod address;
mod cluster;
mod meter;
pub(crate) mod pin;
mod process;
mod server;
mod testbed;

pub(crate) use address::Address;
pub(crate) use cluster::{Cores, DelayedCluster};
pub(crate) use meter::{MeasuredCost, Meter, info};
pub(crate) use process::{Cost, Process, thread_time};
pub(crate) use server::Server;
pub(crate) use testbed::{Store, Testbed};
