//! How to reach Redis, and the bounds of doing so.

pub(crate) mod pace;

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::client::route::Grouping;
use crate::config::pace::ConnectPace;
use crate::link::tls::{Tls, TlsError};
use crate::node::selection::Selection;
use crate::wire::resp::Protocol;

/// Where a Redis server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name or IP address, and a port. The name is resolved at every connect.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

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

/// How many node groups of one batch may be under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism(NonZero<usize>);

impl Parallelism {
    /// One after the other: after a group with a failed command the rest is not sent.
    pub const SERIAL: Self = Self(NonZero::<usize>::MIN);
    /// All at once.
    pub const UNBOUNDED: Self = Self(NonZero::<usize>::MAX);

    /// At most `setting` groups and at most `pool_size`; 0 means `pool_size`. A pool size below 1 counts as 1.
    ///
    /// # Errors
    /// A negative setting.
    pub fn new(setting: i64, pool_size: usize) -> Result<Self, ConfigError> {
        let pool_size = NonZero::new(pool_size).unwrap_or(NonZero::<usize>::MIN);
        let setting = usize::try_from(setting).map_err(|_| ConfigError::NegativeParallelism { setting })?;
        Ok(Self(NonZero::new(setting).map_or(pool_size, |setting| setting.min(pool_size))))
    }

    pub(crate) fn groups(self) -> usize {
        self.0.get()
    }
}

/// What a connection authenticates with.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The ACL user; none for the default user.
    pub username: Option<String>,
    /// The password.
    pub password: String,
}

/// Tells what to authenticate with, each time a connection opens: for passwords and tokens that change.
#[derive(Clone)]
pub struct CredentialsProvider(Arc<Provide>);

type Provide = dyn Fn() -> Result<Credentials, String> + Send + Sync;

impl CredentialsProvider {
    /// Asks `provide`. It runs on the thread of the connection and must not take long; its error, in words without secrets,
    /// becomes the reason why the server is unavailable.
    pub fn new(provide: impl Fn() -> Result<Credentials, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(provide))
    }

    pub(crate) fn ask(&self) -> Result<Credentials, String> {
        (self.0)()
    }
}

/// Tells where to reach a server that names an address of its own which means nothing here, as behind address translation
/// or in containers.
#[derive(Clone)]
pub struct AddressMap(Arc<Translate>);

type Translate = dyn Fn(Address) -> Address + Send + Sync;

impl AddressMap {
    /// Asks `translate` about every address that a server names: an owner of slots, the target of a redirect, the primary
    /// that a sentinel knows. Where a server leaves its host out, it is the one that was asked, beside the port it named. What
    /// needs no translation is returned as it came. Addresses in the configuration are not translated.
    pub fn new(translate: impl Fn(Address) -> Address + Send + Sync + 'static) -> Self {
        Self(Arc::new(translate))
    }
}

/// How to reach Redis, and the bounds of doing so.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The servers.
    pub servers: Servers,
    /// Most node groups of one batch under way at once. Default all.
    pub parallelism: Parallelism,
    /// Which units of a batch travel together. Default all that one node owns.
    pub grouping: Grouping,
    /// Translates the addresses that servers name; none leaves them as they are.
    pub address_map: Option<AddressMap>,
    /// The version of the protocol. Default RESP2.
    pub protocol: Protocol,
    /// Encrypts TCP connections; none leaves them plain.
    pub tls: Option<Tls>,
    /// Sent as AUTH on every new connection.
    pub credentials: Option<Credentials>,
    /// Asked at every new connection instead, if there is one.
    pub credentials_provider: Option<CredentialsProvider>,
    /// Selected on every new connection; 0 is Redis's default.
    pub database: u32,
    /// Longest wait for a socket, TLS and authentication together. Default 1 s.
    pub connect_timeout: Duration,
    /// A connection that owes a reply and received nothing for this long is given up. Default 5 s.
    pub stall_timeout: Duration,
    /// How a node chooses among its connections. Default the first of the oldest 16 with room.
    pub selection: Selection,
    /// Connections to one node that stay open when idle. Default 1.
    pub min_connections: usize,
    /// A connection beyond `min_connections` closes after this time without a reply; 0 keeps it. Default 60 s.
    pub idle_timeout: Duration,
    /// Most connections to one node. Default 4: Redis runs commands on one thread, so more only cost.
    pub max_connections: usize,
    /// How fast connections are opened over all nodes, in this client and in those made from clones of this configuration.
    /// Default 100 at once, then 100 a second.
    pub connect_pace: ConnectPace,
    /// Most commands between write and reply on one connection. Default 1024.
    pub in_flight_commands: usize,
    /// Most bytes between write and reply on one connection. Default 1 MiB.
    pub in_flight_bytes: usize,
    /// Most commands that wait for a node in this process. Default 65,536.
    pub queue_commands: usize,
    /// Most bytes that wait for a node in this process. Default 32 MiB.
    pub queue_bytes: usize,
    /// First wait after a failed connect. Default 50 ms.
    pub backoff_min: Duration,
    /// Longest wait between two connects. Default 500 ms, so that service is back within a second of Redis.
    pub backoff_max: Duration,
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Not an address.
    #[error("'{text}' is not an address: expected host:port, [ipv6]:port or a path of a unix socket")]
    Address {
        /// What was given.
        text: String,
    },
    /// A parallelism below zero.
    #[error("redis cluster pipeline parallelism must be >= 0, and is {setting}")]
    NegativeParallelism {
        /// What was given.
        setting: i64,
    },
    /// No server to begin with.
    #[error("at least one server address is needed")]
    NoServers,
    /// Certificates or keys that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A bound that must be at least one is zero.
    #[error("{name} must be at least 1")]
    Zero {
        /// The field.
        name: &'static str,
    },
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
        Self::new(Servers::Sentinel { master: master.to_owned(), sentinels, credentials: None })
    }

    fn new(servers: Servers) -> Self {
        Self {
            servers,
            parallelism: Parallelism::UNBOUNDED,
            grouping: Grouping::default(),
            address_map: None,
            protocol: Protocol::default(),
            tls: None,
            credentials: None,
            credentials_provider: None,
            database: 0,
            connect_timeout: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(5),
            selection: Selection::default(),
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

    /// Where the server is that others, or itself, name by `address`.
    pub(crate) fn reachable(&self, address: Address) -> Address {
        match &self.address_map {
            Some(AddressMap(translate)) => translate(address),
            None => address,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match &self.servers {
            Servers::Cluster(addresses) | Servers::Sentinel { sentinels: addresses, .. } if addresses.is_empty() => {
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

impl FromStr for Address {
    type Err = ConfigError;

    /// Reads `host:port`, `[ipv6]:port`, or a path that starts with `/` or `.`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let invalid = || ConfigError::Address { text: text.to_owned() };
        if text.starts_with(['/', '.']) {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let bracketed = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        let host = match bracketed {
            Some(inner) => inner,
            None if host.contains(':') => return Err(invalid()),
            None => host,
        };
        let port = port.parse().map_err(|_| invalid())?;
        if host.is_empty() {
            return Err(invalid());
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Credentials {
    // A password must not reach a log through a debug print of the configuration around it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressMap").finish_non_exhaustive()
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsProvider").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_written() {
        for text in ["localhost:6379", "[::1]:1", "/run/redis.sock", "10.0.0.1:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "localhost", ":6379", "::1:6379", "host:port", "host:65536", "host:-1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn parallelism_follows_the_pool_size() {
        let check = |setting, pool_size, expected| {
            assert_eq!(Parallelism::new(setting, pool_size).unwrap().groups(), expected, "({setting}, {pool_size})");
        };
        check(1, 10, 1);
        check(0, 10, 10);
        check(8, 10, 8);
        check(20, 10, 10);
        check(0, 0, 1);
        let refused = Parallelism::new(-1, 10).unwrap_err().to_string();
        assert!(refused.starts_with("redis cluster pipeline parallelism must be >= 0"), "{refused}");
    }

    #[test]
    fn a_password_is_not_printed() {
        let credentials = Credentials { username: Some("ada".into()), password: "secret".into() };
        assert!(!format!("{credentials:?}").contains("secret"));
    }
}
