//! Settings of memcached.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_pipeline::{Address, Connector};

use super::read::Values;
use super::redis::tls;

const BACKEND: &str = "BACKEND_TYPE";
const HOSTS: &str = "MEMCACHE_HOST_PORT";
const SRV_NAME: &str = "MEMCACHE_SRV";
const RESOLVERS: &str = "TIDEGATE_DNS_SERVERS";

/// Memcached for the counters.
#[derive(Debug, Clone)]
pub struct Memcache {
    /// Servers of memcached.
    pub source: Source,
    /// TLS of the connections. None for plaintext.
    pub tls: Option<Connector>,
}

/// Servers of memcached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A fixed list of addresses.
    List(Vec<Address>),
    /// A name that DNS resolves.
    Srv(Srv),
}

/// A DNS name with a SRV record for each server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Srv {
    /// The name in the form `_service._proto.name`.
    pub name: String,
    /// Interval between two lookups. None if the name is looked up once.
    pub refresh: Option<Duration>,
    /// DNS servers. Empty for those of /etc/resolv.conf.
    pub resolvers: Vec<SocketAddr>,
}

impl fmt::Display for Memcache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::List(list) => {
                let list: Vec<String> = list.iter().map(ToString::to_string).collect();
                write!(f, "memcached at {}", list.join(","))
            }
            Source::Srv(srv) => write!(f, "memcached at the servers of {}", srv.name),
        }
    }
}

/// Whether counters are stored in memcached.
pub(super) fn is_wanted(values: &Values) -> bool {
    values.text(BACKEND) == "memcache"
}

/// Settings of memcached. None if it is not used, or if there is a mistake.
pub(super) fn build(values: &mut Values) -> Option<Memcache> {
    let resolvers = resolvers(values);
    if !is_wanted(values) {
        return None;
    }
    for ignored in [
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        "REDIS_PERSECOND",
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
    ] {
        if values.boolean(ignored) {
            values.warnings.push(format!(
                "{ignored}=true has no effect: counters are in memcached ({BACKEND}=memcache)"
            ));
        }
    }
    let source = source(values, resolvers)?;
    let is_tls = values.boolean("MEMCACHE_TLS");
    let tls = is_tls.then(|| tls::build(values, &tls::MEMCACHE)).flatten();
    Some(Memcache { source, tls })
}

/// The servers, which exactly one of two variables names.
fn source(values: &mut Values, resolvers: Vec<SocketAddr>) -> Option<Source> {
    let list = values.list(HOSTS);
    match (values.filled(SRV_NAME), list.is_empty()) {
        (Some(name), false) => {
            let reason = "Both MEMCACHE_HOST_PORT and MEMCACHE_SRV are set; unset one";
            values.problem(SRV_NAME, &name, reason);
            None
        }
        (None, true) => {
            let reason = format!(
                "it needs servers: set {HOSTS} to host:port,host:port,.. or {SRV_NAME} to a name in DNS"
            );
            values.problem(BACKEND, "memcache", reason);
            None
        }
        (None, false) => addresses(values, &list).map(Source::List),
        (Some(name), true) => srv(values, name, resolvers).map(Source::Srv),
    }
}

fn addresses(values: &mut Values, list: &[String]) -> Option<Vec<Address>> {
    let read: Result<_, _> = list.iter().map(|text| text.trim().parse()).collect();
    let expected = "expected host:port, or the path of a Unix socket, of each server";
    values.reported(HOSTS, &list.join(","), read.map_err(|_| expected))
}

fn srv(values: &mut Values, name: String, resolvers: Vec<SocketAddr>) -> Option<Srv> {
    let labels: Vec<&str> = name.splitn(3, '.').collect();
    let is_service = |label: &str| label.len() > 1 && label.starts_with('_');
    if !matches!(labels[..], [service, protocol, rest] if is_service(service) && is_service(protocol) && !rest.is_empty())
    {
        values.problem(
            SRV_NAME,
            &name,
            format!("could not parse {name} to SRV parts; expected _service._proto.name"),
        );
        return None;
    }
    Some(Srv {
        refresh: values.duration_unless_zero("MEMCACHE_SRV_REFRESH"),
        name,
        resolvers,
    })
}

fn resolvers(values: &mut Values) -> Vec<SocketAddr> {
    let list = values.list(RESOLVERS);
    let read: Result<_, _> = list.iter().map(|text| text.trim().parse()).collect();
    let expected = "expected address:port of each server";
    values
        .reported(RESOLVERS, &list.join(","), read.map_err(|_| expected))
        .unwrap_or_default()
}
