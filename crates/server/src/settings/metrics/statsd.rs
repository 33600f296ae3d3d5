//! Export to StatsD.

use std::time::Duration;

use super::mogrifiers::{self, Mogrifier};
use crate::settings::read::Values;

/// Server, format and interval of the export to StatsD.
#[derive(Debug, Clone)]
pub struct Statsd {
    /// Host name or IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Transport protocol.
    pub transport: Transport,
    /// Format of the lines.
    pub dialect: Dialect,
    /// Interval between two transmissions.
    pub interval: Duration,
}

/// Transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A TCP connection that stays open.
    Tcp,
    /// UDP datagrams.
    Udp,
}

/// Format of the lines.
#[derive(Debug, Clone)]
pub enum Dialect {
    /// Plain StatsD: tags are part of the name.
    Statsd,
    /// DogStatsD: tags follow the value, and these rules rewrite names.
    Dog(Vec<Mogrifier>),
}

pub(super) fn build(values: &mut Values) -> Option<Statsd> {
    let plain = values.boolean("USE_STATSD");
    let dog = values.boolean("USE_DOG_STATSD");
    let interval = values.positive_duration("STATS_FLUSH_INTERVAL");
    if !(plain || dog) || values.boolean("DISABLE_STATS") {
        return None;
    }
    let host = values.text("STATSD_HOST");
    if host.is_empty() {
        values.problem("STATSD_HOST", "", "expected a host name or an address");
    }
    let udp = dog || values.text("STATSD_PROTOCOL") == "udp";
    Some(Statsd {
        host,
        port: values.integer("STATSD_PORT", 1..=65_535) as u16,
        transport: if udp { Transport::Udp } else { Transport::Tcp },
        dialect: if dog {
            Dialect::Dog(mogrifiers::build(values))
        } else {
            Dialect::Statsd
        },
        interval,
    })
}
