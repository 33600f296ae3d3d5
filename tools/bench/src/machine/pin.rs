//! Pins processes and threads to cores.
//!
//! On two cores the scheduler's choices cost more than the measured difference. So servers and
//! their proxy stay on one core, and load on another. On a machine with one core nothing is pinned.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::delay::DelayProxy;

/// One of the first two cores.
#[derive(Clone, Copy)]
pub(crate) enum Core {
    /// For Redis and the proxies in front of it.
    Servers = 0,
    /// For the load on them.
    Load = 1,
}

/// Pins the current thread, and threads that it starts later, to a core.
pub(crate) fn current_thread(core: Core) -> Result<()> {
    pin(None, core)
}

/// Pins the main thread of a process to a core.
pub(crate) fn process(pid: u32, core: Core) -> Result<()> {
    let pid = Pid::from_raw(pid as i32).context("a process has an id")?;
    pin(Some(pid), core)
}

/// Starts proxies on the core of the servers, and leaves the current thread on that of the load.
pub(crate) fn proxies(servers: &[SocketAddr], one_way: Duration) -> Result<DelayProxy> {
    current_thread(Core::Servers)?;
    let proxy = DelayProxy::start(servers, one_way)?;
    current_thread(Core::Load)?;
    Ok(proxy)
}

fn pin(pid: Option<Pid>, core: Core) -> Result<()> {
    if !has_second_core() {
        return Ok(());
    }
    let mut cores = CpuSet::new();
    cores.set(core as usize);
    sched_setaffinity(pid, &cores)
        .with_context(|| format!("could not stay on core {}", core as usize))
}

/// Checks the machine and not the thread, which may be pinned already.
fn has_second_core() -> bool {
    std::fs::exists("/sys/devices/system/cpu/cpu1").unwrap_or(false)
}
