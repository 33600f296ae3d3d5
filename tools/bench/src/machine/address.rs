//! Address of the measured server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, bail};

/// A plaintext address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    /// Returns the `:authority` of requests.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Tcp { .. } => self.to_string(),
            Self::Unix(_) => "localhost".into(),
        }
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.strip_prefix("//").unwrap_or(path).into()));
        }
        let plain = text
            .strip_prefix("http://")
            .unwrap_or(text)
            .trim_end_matches('/');
        if plain.contains("://") {
            bail!("'{text}' is not plaintext; give host:port or unix:/path");
        }
        let (host, port) = plain
            .rsplit_once(':')
            .with_context(|| format!("'{text}' has no port"))?;
        let port = port
            .parse()
            .with_context(|| format!("'{text}' has a bad port"))?;
        Ok(Self::Tcp {
            host: if host.is_empty() { "127.0.0.1" } else { host }.into(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            text.parse::<Address>()
                .ok()
                .map(|address| address.to_string())
                .as_deref(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn addresses_are_read() {
        check("localhost:8081", Some("localhost:8081"));
        check("http://127.0.0.1:1/", Some("127.0.0.1:1"));
        check("[::1]:9", Some("[::1]:9"));
        check(":8081", Some("127.0.0.1:8081"));
        check("unix:/run/a.sock", Some("unix:/run/a.sock"));
        check("unix:///run/a.sock", Some("unix:/run/a.sock"));
        check("localhost", None);
        check("localhost:port", None);
        check("https://localhost:1", None);
    }
}
