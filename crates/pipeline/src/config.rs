//! Settings of a client: servers, security, timeouts and bounds.

mod address;
mod connector;
mod credentials;
mod error;
mod guard;
mod pace;
mod parallelism;
mod tls;

pub use address::{Address, AddressMap};
pub use connector::Connector;
pub use credentials::{Credentials, CredentialsProvider};
pub use error::ConfigError;
pub use pace::ConnectPace;
pub use parallelism::Parallelism;
pub use tls::{ClientCertificate, Tls, TlsError, Verification};

use std::time::Duration;

use crate::wire::Protocol;
use guard::guarded;

/// The servers of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Servers {
    /// One server that owns every key.
    Single(Address),
    /// A cluster, given by some of its nodes. One that answers is enough to find the rest.
    Cluster(Vec<Address>),
    /// The primary that sentinels name.
    Sentinel {
        /// The name of the primary in the sentinels' configuration.
        master: String,
        /// The sentinels. One that answers is enough.
        sentinels: Vec<Address>,
        /// Sent as AUTH to the sentinels; [`Config::credentials`] is for the primary.
        credentials: Option<Credentials>,
    },
}

/// Settings of a client: servers, security, timeouts and bounds.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The servers.
    pub servers: Servers,
    /// Maximum number of nodes that one batch is sent to at once. Default: no bound.
    pub parallelism: Parallelism,
    /// Translates the addresses that servers name. `None` leaves them unchanged.
    pub address_map: Option<AddressMap>,
    /// The version of the protocol. Default RESP2.
    pub protocol: Protocol,
    /// Encrypts TCP connections. `None` leaves them plain. Its certificates may be replaced while
    /// clients use it.
    pub tls: Option<Connector>,
    /// Sent as AUTH on every new connection.
    pub credentials: Option<Credentials>,
    /// Provides the credentials of every new connection, in place of `credentials`.
    pub credentials_provider: Option<CredentialsProvider>,
    /// Selected on every new connection; 0 is Redis's default.
    pub database: u32,
    /// Maximum time for connect, TLS handshake and authentication in all. Default 1 s.
    pub connect_timeout: Duration,
    /// A connection with a reply due that received nothing for this long is closed. Default 5 s.
    pub stall_timeout: Duration,
    /// A single server is unavailable if a reply has been due for this long and it answers no new
    /// connection either: calls are then refused at once. Calls wait until then, so neither this
    /// nor `stall_timeout` should be less than the maximum time of a call. Default 1 s. In a
    /// cluster, and behind sentinels, calls wait in any case, because another node may take over.
    pub silence_timeout: Duration,
    /// Number of connections, oldest first, that are searched in order: a group goes to the first
    /// of them that has room, otherwise to a random one of the rest. 0 is random only, which keeps
    /// every connection in use that a spike has opened. Default 16.
    pub search_space: usize,
    /// Connections to one node that stay open when idle. Default 1.
    pub min_connections: usize,
    /// A connection beyond `min_connections` closes after this time without a reply; 0 keeps it.
    /// Default 60 s.
    pub idle_timeout: Duration,
    /// Maximum number of connections to one node. Default 4: Redis runs commands on one thread, so
    /// more connections only cost.
    pub max_connections: usize,
    /// Rate of new connections over all nodes, in this client and in clients of clones of this
    /// configuration. Default 100 at once, then 100 a second.
    pub connect_pace: ConnectPace,
    /// Maximum number of commands in flight on one connection. Default 1024. An idle connection
    /// takes all commands of one call within `in_flight_bytes`.
    pub in_flight_commands: usize,
    /// Maximum bytes of commands in flight on one connection. Default 1 MiB.
    pub in_flight_bytes: usize,
    /// Maximum number of commands that are queued for a node, and of commands that wait for a retry
    /// there, in this client. Default 65,536.
    pub queue_commands: usize,
    /// Maximum bytes that are queued for a node, and of commands that wait for a retry there, in
    /// this client. Default 32 MiB.
    pub queue_bytes: usize,
    /// Delay after the first failed connect. Default 50 ms.
    pub backoff_min: Duration,
    /// Maximum delay between two connects. Default 500 ms, so that service resumes within a second
    /// after Redis does.
    pub backoff_max: Duration,
}

impl Config {
    /// Creates settings for one server, with default bounds.
    #[must_use]
    pub fn single(address: Address) -> Self {
        Self::new(Servers::Single(address))
    }

    /// Creates settings for a cluster, with default bounds.
    #[must_use]
    pub fn cluster(seeds: Vec<Address>) -> Self {
        Self::new(Servers::Cluster(seeds))
    }

    /// Creates settings for the primary that sentinels name `master`, with default bounds.
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

    /// Translates an address that a server names. `None` if the address map fails.
    pub(crate) fn reachable(&self, address: Address) -> Option<Address> {
        match &self.address_map {
            Some(map) => map.translate(address),
            None => Some(address),
        }
    }

    /// Returns the delay after `failures` consecutive failures, at least one. Full jitter: a random
    /// time up to a bound that doubles with each failure, so that clients spread out after an
    /// outage.
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
