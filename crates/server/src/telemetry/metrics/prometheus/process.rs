//! Metrics of the process, under the names of the Prometheus client libraries.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::Page;

/// Clock ticks per second in which the kernel reports times.
const TICKS: f64 = 100.0;

/// Values of the kernel for this process.
#[derive(Debug, PartialEq)]
struct Process {
    /// CPU time in seconds, in user and kernel mode.
    cpu: f64,
    threads: f64,
    /// Seconds from the boot of the machine to the start of the process.
    started: f64,
    virtual_bytes: f64,
}

impl Page {
    /// Appends the metrics of the process, if the kernel provides them.
    pub(super) fn process(&mut self) {
        let Some(process) = fs::read_to_string("/proc/self/stat")
            .ok()
            .and_then(|text| Process::read(&text))
        else {
            return;
        };
        self.one("process_cpu_seconds_total", "counter", process.cpu);
        // The folder itself is open while it is read.
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            self.one(
                "process_open_fds",
                "gauge",
                files.count().saturating_sub(1) as f64,
            );
        }
        self.one("process_max_fds", "gauge", most(Resource::Nofile));
        self.one(
            "process_virtual_memory_bytes",
            "gauge",
            process.virtual_bytes,
        );
        self.one(
            "process_virtual_memory_max_bytes",
            "gauge",
            most(Resource::As),
        );
        let status = fs::read_to_string("/proc/self/status").ok();
        if let Some(kib) = status.as_deref().and_then(|text| field(text, "VmRSS:")) {
            self.one("process_resident_memory_bytes", "gauge", kib * 1024.0);
        }
        if let Some(boot) = fs::read_to_string("/proc/stat")
            .ok()
            .and_then(|text| field(&text, "btime "))
        {
            self.one(
                "process_start_time_seconds",
                "gauge",
                boot + process.started,
            );
        }
        self.one("process_threads", "gauge", process.threads);
    }

    fn one(&mut self, name: &str, kind: &str, value: f64) {
        self.family(name, kind);
        self.sample(name, &[], value);
    }
}

impl Process {
    fn read(stat: &str) -> Option<Self> {
        // The name of the program is in parentheses, and may contain spaces and parentheses.
        let fields: Vec<f64> = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .map(|field| field.parse().unwrap_or_default())
            .collect();
        // proc_pid_stat(5) counts from 1, and the first field after the name is the third.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            cpu: (field(14)? + field(15)?) / TICKS,
            threads: field(20)?,
            started: field(22)? / TICKS,
            virtual_bytes: field(23)?,
        })
    }
}

/// Number at the start of the line with this prefix.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Soft limit of a resource. As in Go, the highest number if there is none.
fn most(resource: Resource) -> f64 {
    getrlimit(resource).current.unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let stat =
            "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 250 50 0 0 20 0 12 0 4200 1048576 300 184467440737";
        let expected = Process {
            cpu: 3.0,
            threads: 12.0,
            started: 42.0,
            virtual_bytes: 1_048_576.0,
        };
        assert_eq!(Process::read(stat), Some(expected));
        assert_eq!(Process::read("7 (a) S 1"), None);
    }
}
