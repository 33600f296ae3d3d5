//! How to reach Redis, and the bounds of doing so.

pub(crate) mod address;
pub(crate) mod connector;
pub(crate) mod credentials;
pub(crate) mod error;
mod guard;
pub(crate) mod pace;
pub(crate) mod parallelism;
pub(crate) mod tls;

use std::time::Duration;

use crate::config::address::{Address, AddressMap};
use crate::config::connector::Connector;
use crate::config::credentials::{Credentials, CredentialsProvider};
use crate::config::error::ConfigError;
use crate::config::pace::ConnectPace;
use crate::config::parallelism::Parallelism;
use crate::wire::reply::Protocol;

/// Which servers a client talks to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Servers {
    /// One server that owns every key.
    Single(Address),
    /// A cluster, known by some of its nodes. One that answers is enough to find the rest.
    Cluster(Vec<Address>),
    /// The primary that sentinels name, wherever it is.
    Sentinel {
        /// The name of the primary in the sentinels' configuration.
        master: String,
        /// The sentinels. One that answers is enough.
        sentinels: Vec<Address>,
        /// Sent as AUTH to the sentinels; [`Config::credentials`] is for the primary.
        credentials: Option<Credentials>,
    },
}

/// How to reach Redis, and the bounds of doing so.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The servers.
    pub servers: Servers,
    /// The most nodes that one batch is sent to at once. Default all.
    pub parallelism: Parallelism,
    /// Translates the addresses that servers name; none leaves them as they are.
    pub address_map: Option<AddressMap>,
    /// The version of the protocol. Default RESP2.
    pub protocol: Protocol,
    /// Encrypts TCP connections; none leaves them plain. What it encrypts with may be replaced while clients use it.
    pub tls: Option<Connector>,
    /// Sent as AUTH on every new connection.
    pub credentials: Option<Credentials>,
    /// Asked at every new connection instead, if there is one.
    pub credentials_provider: Option<CredentialsProvider>,
    /// Selected on every new connection; 0 is Redis's default.
    pub database: u32,
    /// Longest wait for a socket, TLS and authentication together. Default 1 s.
    pub connect_timeout: Duration,
    /// A connection with a reply due that received nothing for this long is closed. Default 5 s.
    pub stall_timeout: Duration,
    /// A single server whose reply has been due for this long, and that answers no new connection either, is unavailable:
    /// calls are refused at once. Calls wait for it until then, so neither this nor `stall_timeout` should be less than the
    /// longest time that a call may take. Default 1 s. In a cluster, and behind sentinels, calls wait in any case: another node
    /// may take over.
    pub silence_timeout: Duration,
    /// A group goes to the first of so many connections, the oldest, that has room for it, else to a random one of the rest.
    /// 0 is random only, which keeps every connection in use that a spike has opened. Default 16.
    pub search_space: usize,
    /// Connections to one node that stay open when idle. Default 1.
    pub min_connections: usize,
    /// A connection beyond `min_connections` closes after this time without a reply; 0 keeps it. Default 60 s.
    pub idle_timeout: Duration,
    /// Most connections to one node. Default 4: Redis runs commands on one thread, so more only cost.
    pub max_connections: usize,
    /// How fast connections are opened over all nodes, in this client and in those made from clones of this configuration.
    /// Default 100 at once, then 100 a second.
    pub connect_pace: ConnectPace,
    /// Most commands between write and reply on one connection. Default 1024. A connection with nothing under way takes all
    /// commands of one call within `in_flight_bytes`.
    pub in_flight_commands: usize,
    /// Most bytes between write and reply on one connection. Default 1 MiB.
    pub in_flight_bytes: usize,
    /// Most commands that wait for a node, and most that wait to be sent to it again, in this client. Default 65,536.
    pub queue_commands: usize,
    /// Most bytes that wait for a node, and most that wait to be sent to it again, in this client. Default 32 MiB.
    pub queue_bytes: usize,
    /// First wait after a failed connect. Default 50 ms.
    pub backoff_min: Duration,
    /// Longest wait between two connects. Default 500 ms, so that service is back within a second of Redis.
    pub backoff_max: Duration,
}

impl Config {
    /// One server, with default bounds.
    #[must_use]
    pub fn single(address: Address) -> Self {
        Self::new(Servers::Single(address))
    }

    /// A cluster, with default bounds.
    #[must_use]
    pub fn cluster(seeds: Vec<Address>) -> Self {
        Self::new(Servers::Cluster(seeds))
    }

    /// The primary that sentinels name `master`, with default bounds.
    #[must_use]
    pub fn sentinel(master: &str, sentinels: Vec<Address>) -> Self {
        Self::new(Servers::Sentinel {
            master: master.to_owned(),
            sentinels,
            credentials: None,
        })
    }

    fn new(servers: Servers) -> Self {
        Self {
            servers,
            parallelism: Parallelism::UNBOUNDED,
            address_map: None,
            protocol: Protocol::default(),
            tls: None,
            credentials: None,
            credentials_provider: None,
            database: 0,
            connect_timeout: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(5),
            silence_timeout: Duration::from_secs(1),
            search_space: 16,
            min_connections: 1,
            idle_timeout: Duration::from_secs(60),
            max_connections: 4,
            connect_pace: ConnectPace::default(),
            in_flight_commands: 1024,
            in_flight_bytes: 1 << 20,
            queue_commands: 65_536,
            queue_bytes: 32 << 20,
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_millis(500),
        }
    }

    /// Where the server is that others, or itself, name by `address`; none when the address map cannot tell.
    pub(crate) fn reachable(&self, address: Address) -> Option<Address> {
        match &self.address_map {
            Some(map) => map.translate(address),
            None => Some(address),
        }
    }

    /// How long to wait after so many failures in a row, at least one. Full jitter: anything up to a bound that doubles with
    /// each failure, so that clients spread out after an outage.
    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        let bound = self
            .backoff_min
            .saturating_mul(1 << (failures - 1).min(16))
            .min(self.backoff_max);
        bound.mul_f64(fastrand::f64())
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match &self.servers {
            Servers::Cluster(addresses)
            | Servers::Sentinel {
                sentinels: addresses,
                ..
            } if addresses.is_empty() => {
                return Err(ConfigError::NoServers);
            }
            _ => {}
        }
        for (name, value) in [
            ("max_connections", self.max_connections),
            ("in_flight_commands", self.in_flight_commands),
            ("in_flight_bytes", self.in_flight_bytes),
            ("queue_commands", self.queue_commands),
            ("queue_bytes", self.queue_bytes),
        ] {
            if value == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        Ok(())
    }
}
