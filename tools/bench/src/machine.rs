//! Servers and their stores on this machine, their processes, and the cores they run on.

mod address;
mod cluster;
mod meter;
pub(crate) mod pin;
mod process;
mod program;
mod server;
mod testbed;

pub(crate) use address::{server_address, tcp_address};
pub(crate) use cluster::{Cores, DelayedCluster};
pub(crate) use meter::{MeasuredCost, Meter, info};
pub(crate) use process::{Cost, Process, thread_time};
pub(crate) use program::printed;
pub(crate) use server::Server;
pub(crate) use testbed::{Store, Testbed};
