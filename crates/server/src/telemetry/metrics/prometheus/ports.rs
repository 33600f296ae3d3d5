//! Metrics of connections and bodies by port; docs/guarantees.md describes the limits.

use crate::net::bounds::PortSample;

use super::{Page, Snapshot};

type PortValue = fn(&PortSample) -> u64;

const FAMILIES: [(&str, &str, PortValue); 3] = [
    ("tidegate_connections", "gauge", |port| port.open),
    ("tidegate_connections_accepted_total", "counter", |port| {
        port.accepted
    }),
    ("tidegate_connections_refused_total", "counter", |port| {
        port.refused
    }),
];

/// Reasons for which the server closed connections, in the order of the sample.
const CLOSE_REASONS: [&str; 6] = ["room", "silent", "unread", "noise", "resets", "handshake"];

/// Reasons for which requests were refused, in the order of the sample.
const EXCESS_REASONS: [&str; 2] = ["descriptors", "entries"];

impl Page {
    pub(super) fn ports(&mut self, snapshot: &Snapshot) {
        for (name, kind, value) in FAMILIES {
            self.family(name, kind);
            for port in &snapshot.ports {
                self.sample(name, &[("port", &label(port))], value(port));
            }
        }
        self.by_reason("tidegate_connections_closed_total", snapshot, |port| {
            CLOSE_REASONS.into_iter().zip(port.closed).collect()
        });
        self.by_reason("tidegate_bodies_refused_total", snapshot, |port| {
            vec![("slow", port.slow), ("room", port.memory_refusals)]
        });
        let name = "tidegate_requests_refused_total";
        self.family(name, "counter");
        for (reason, count) in EXCESS_REASONS.iter().zip(snapshot.excess) {
            self.sample(name, &[("reason", reason)], count);
        }
    }

    /// Appends a counter for each port and reason.
    fn by_reason(
        &mut self,
        name: &str,
        snapshot: &Snapshot,
        counts: fn(&PortSample) -> Vec<(&'static str, u64)>,
    ) {
        self.family(name, "counter");
        for port in &snapshot.ports {
            for (reason, count) in counts(port) {
                self.sample(name, &[("port", &label(port)), ("reason", reason)], count);
            }
        }
    }
}

fn label(port: &PortSample) -> String {
    port.port.to_ascii_lowercase()
}
