//! Metrics of connections and bodies by port; docs/limits.md describes the limits.

use crate::net::bounds::PortSample;

use super::{Page, Snapshot};

type Value = fn(&PortSample) -> u64;

const FAMILIES: [(&str, &str, Value); 3] = [
    ("tidegate_connections", "gauge", |port| port.open),
    ("tidegate_connections_accepted_total", "counter", |port| {
        port.accepted
    }),
    ("tidegate_connections_refused_total", "counter", |port| {
        port.refused
    }),
];

/// Reasons for which the server closed connections, in the order of the sample.
const CLOSED: [&str; 6] = ["room", "silent", "unread", "noise", "resets", "handshake"];

/// Reasons for which bodies were refused.
const BODIES: [(&str, Value); 2] = [("slow", |port| port.slow), ("room", |port| port.unfinished)];

/// Reasons for which requests were refused, in the order of the sample.
const EXCESS: [&str; 2] = ["descriptors", "entries"];

impl Page {
    pub(super) fn ports(&mut self, snapshot: &Snapshot) {
        for (name, kind, value) in FAMILIES {
            self.family(name, kind);
            for port in &snapshot.ports {
                self.sample(name, &[("port", &label(port))], value(port));
            }
        }
        let name = "tidegate_connections_closed_total";
        self.family(name, "counter");
        for port in &snapshot.ports {
            for (reason, count) in CLOSED.iter().zip(port.closed) {
                self.sample(name, &[("port", &label(port)), ("reason", reason)], count);
            }
        }
        let name = "tidegate_bodies_refused_total";
        self.family(name, "counter");
        for port in &snapshot.ports {
            for (reason, value) in BODIES {
                self.sample(
                    name,
                    &[("port", &label(port)), ("reason", reason)],
                    value(port),
                );
            }
        }
        let name = "tidegate_requests_refused_total";
        self.family(name, "counter");
        for (reason, count) in EXCESS.iter().zip(snapshot.excess) {
            self.sample(name, &[("reason", reason)], count);
        }
    }
}

fn label(port: &PortSample) -> String {
    port.port.to_ascii_lowercase()
}
