//! Where metrics are sent to.

use std::time::Duration;

use super::mogrifiers::{self, Mogrifier};
use crate::settings::read::Values;

/// Where metrics are sent to, how, and how often.
#[derive(Debug, Clone)]
pub struct Statsd {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The protocol below.
    pub transport: Transport,
    /// How a line is written.
    pub dialect: Dialect,
    /// Between two transmissions.
    pub interval: Duration,
}

/// The protocol below statsd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A connection that stays open.
    Tcp,
    /// Datagrams.
    Udp,
}

/// How a line is written.
#[derive(Debug, Clone)]
pub enum Dialect {
    /// Tags are a part of the name.
    Statsd,
    /// Tags follow the value, and these rules change names.
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
        values.problem(
            "STATSD_HOST",
            "",
            "expected a host name or an address".to_owned(),
        );
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
