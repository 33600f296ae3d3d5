//! Addresses of servers, and their translation.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tracing::warn;

use super::{ConfigError, guarded};

/// Address of a Redis server.
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

/// Translates the addresses that servers name, if clients reach the servers at other addresses:
/// behind address translation or in containers.
#[derive(Clone)]
pub struct AddressMap(Arc<Translate>);

type Translate = dyn Fn(Address) -> Address + Send + Sync;

impl AddressMap {
    /// Calls `translate` for every address that a server names: an owner of slots, the target of a
    /// redirect, the primary of a sentinel. An empty host is replaced by the host that answered. An
    /// address that needs no translation is returned unchanged. Addresses in the configuration are
    /// not translated.
    pub fn new(translate: impl Fn(Address) -> Address + Send + Sync + 'static) -> Self {
        Self(Arc::new(translate))
    }
}

impl AddressMap {
    /// Returns whether both are clones of one map.
    pub(crate) fn are_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one.0, &other.0),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns `None` if the caller's function panics: then the address is unknown.
    pub(crate) fn translate(&self, address: Address) -> Option<Address> {
        guarded("address map", || (self.0)(address))
            .inspect_err(|error| warn!(error, "an address is unknown"))
            .ok()
    }
}

impl FromStr for Address {
    type Err = ConfigError;

    /// Reads `host:port`, `[ipv6]:port`, or a path that starts with `/` or `.`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let invalid = || ConfigError::Address {
            text: text.to_owned(),
        };
        if text.starts_with(['/', '.']) {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'));
        let host = match bracketed {
            Some(inner) => inner,
            None if host.contains(':') => return Err(invalid()),
            None => host,
        };
        let port = port.parse().map_err(|_| invalid())?;
        if host.is_empty() {
            return Err(invalid());
        }
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
        })
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

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressMap").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_written() {
        for text in [
            "localhost:6379",
            "[::1]:1",
            "/run/redis.sock",
            "10.0.0.1:65535",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "localhost",
            ":6379",
            "::1:6379",
            "host:port",
            "host:65536",
            "host:-1",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
