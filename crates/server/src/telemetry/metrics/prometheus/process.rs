//! Metrics of the process, under the names of the Prometheus client libraries.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::Page;

/// Clock ticks per second in which the kernel reports times.
const TICKS_PER_SECOND: f64 = 100.0;

/// Values of the kernel for this process.
#[derive(Debug, PartialEq)]
struct ProcessStat {
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
            .and_then(|text| ProcessStat::read(&text))
        else {
            return;
        };
        let number = |file, name| field(&fs::read_to_string(file).ok()?, name);
        // The folder itself is open while it is read.
        let files = fs::read_dir("/proc/self/fd").ok();
        let files = files.map(|files| files.count().saturating_sub(1) as f64);
        let memory = number("/proc/self/status", "VmRSS:").map(|kib| kib * 1024.0);
        let started = number("/proc/stat", "btime ").map(|boot| boot + process.started);
        let max_files = soft_limit(Resource::Nofile);
        let max_memory = soft_limit(Resource::As);
        for (name, kind, value) in [
            ("process_cpu_seconds_total", "counter", Some(process.cpu)),
            ("process_open_fds", "gauge", files),
            ("process_max_fds", "gauge", Some(max_files)),
            (
                "process_virtual_memory_bytes",
                "gauge",
                Some(process.virtual_bytes),
            ),
            (
                "process_virtual_memory_max_bytes",
                "gauge",
                Some(max_memory),
            ),
            ("process_resident_memory_bytes", "gauge", memory),
            ("process_start_time_seconds", "gauge", started),
            ("process_threads", "gauge", Some(process.threads)),
        ] {
            if let Some(value) = value {
                self.family(name, kind);
                self.sample(name, &[], value);
            }
        }
    }
}

impl ProcessStat {
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
            cpu: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            threads: field(20)?,
            started: field(22)? / TICKS_PER_SECOND,
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
fn soft_limit(resource: Resource) -> f64 {
    getrlimit(resource).current.unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let stat =
            "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 250 50 0 0 20 0 12 0 4200 1048576 300 184467440737";
        let expected = ProcessStat {
            cpu: 3.0,
            threads: 12.0,
            started: 42.0,
            virtual_bytes: 1_048_576.0,
        };
        assert_eq!(ProcessStat::read(stat), Some(expected));
        assert_eq!(ProcessStat::read("7 (a) S 1"), None);
    }
}
