//! The cost of a process so far, read from /proc.

use std::fs;
use std::ops::Sub;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::time::{ClockId, clock_gettime};
use tidegate_pipeline::Address;

/// Totals since a process began. The difference of two is the cost between them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Processor time of the threads that still live, to the nanosecond.
    pub(crate) total: Duration,
    /// Time in user mode, in clock ticks (10 ms on most machines).
    pub(crate) user: Duration,
    /// Time in the kernel, in clock ticks.
    pub(crate) system: Duration,
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// A measured process on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Returns the process that listens on `address` on this machine. The error is the reason why
    /// none was found.
    pub(crate) fn listening_on(address: &Address) -> Result<Self> {
        let wanted = match address {
            Address::Tcp { port, .. } => tcp_listeners(*port),
            Address::Unix(path) => unix_listeners(&path.to_string_lossy()),
        };
        if wanted.is_empty() {
            bail!("nothing on this machine listens on {address}");
        }
        let entries = fs::read_dir("/proc").context("could not read /proc")?;
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        if let Some(pid) = pids.into_iter().find(|pid| holds_any(*pid, &wanted)) {
            return Ok(Self(pid));
        }
        bail!(
            "the process that listens on {address} belongs to another user or namespace; name it with --pid"
        )
    }

    /// The cost of the process so far.
    pub(crate) fn cost(self) -> Result<Cost> {
        let stat = self.read("stat")?;
        // The name in parentheses may contain spaces. Field 14 of the line is the 12th after it.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        let ticks = |index: usize| -> Result<Duration> {
            let ticks: u64 = fields
                .get(index)
                .and_then(|field| field.parse().ok())
                .context("unreadable stat")?;
            Ok(Duration::from_nanos(
                ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second(),
            ))
        };
        let mut cost = Cost {
            user: ticks(11)?,
            system: ticks(12)?,
            ..Cost::default()
        };
        for thread in fs::read_dir(format!("/proc/{}/task", self.0))?.flatten() {
            // A thread may end between the listing and these reads; then it counts as none.
            let times = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            cost.total += on_processor(&times).unwrap_or_default();
        }
        Ok(cost)
    }

    /// Returns the processor time of the main thread, to the nanosecond.
    pub(crate) fn main_thread_time(self) -> Result<Duration> {
        on_processor(&self.read("schedstat")?).context("unreadable schedstat")
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(self) -> Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// Returns the maximum of resident memory of the process so far, in bytes.
    pub(crate) fn highest_resident_bytes(self) -> Result<u64> {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(self, name: &str) -> Result<u64> {
        let status = self.read("status")?;
        let kib = |line: &str| {
            line.strip_prefix(name)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        };
        let kib: Option<u64> = status.lines().find_map(kib);
        Ok(kib.with_context(|| format!("no {name} in status"))? * 1024)
    }

    fn read(self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.0);
        fs::read_to_string(&path).with_context(|| format!("could not read {path}"))
    }
}

/// The first field of a thread's schedstat.
fn on_processor(schedstat: &str) -> Option<Duration> {
    schedstat
        .split_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

/// Returns the links to the sockets in a table of the kernel whose fields are wanted. `inode` is
/// the number of the field with the inode.
fn sockets(table: &str, inode: usize, is_wanted: impl Fn(&[&str]) -> bool) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    let link = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let inode = fields.get(inode).filter(|_| is_wanted(&fields))?;
        Some(format!("socket:[{inode}]"))
    };
    text.lines().filter_map(link).collect()
}

/// Returns the links to the sockets that listen on a port, over IPv4 and IPv6.
fn tcp_listeners(port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    let listens =
        |fields: &[&str]| matches!(fields, [_, local, _, LISTEN, ..] if local.ends_with(&suffix));
    let of_table = |table| sockets(table, 9, listens);
    ["tcp", "tcp6"].into_iter().flat_map(of_table).collect()
}

fn unix_listeners(path: &str) -> Vec<String> {
    sockets("unix", 6, |fields| fields.get(7) == Some(&path))
}

fn holds_any(pid: u32, wanted: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        fs::read_link(descriptor.path())
            .is_ok_and(|link| wanted.iter().any(|socket| link.as_os_str() == &socket[..]))
    })
}

/// Processor time of the calling thread so far, to the nanosecond.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_behind_a_tcp_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp {
            host: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
        };
        assert_eq!(Process::listening_on(&address).unwrap(), Process::current());
        drop(listener);
        assert!(Process::listening_on(&address).is_err());
    }

    #[test]
    fn the_process_behind_a_unix_socket_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(
            Process::listening_on(&Address::Unix(path)).unwrap(),
            Process::current()
        );
    }

    #[test]
    fn processor_time_grows_with_work() {
        let before = Process::current().cost().unwrap();
        let spent = |now: Cost| (now - before).total;
        let mut total = 0_u64;
        while spent(Process::current().cost().unwrap()) < Duration::from_millis(30) {
            total = (0..1_000_000).fold(total, |sum: u64, number| sum.wrapping_mul(31) ^ number);
        }
        assert!(
            Process::current().resident_bytes().unwrap() > 100_000,
            "{total}"
        );
    }
}
