//! Address of the measured server.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tidegate_pipeline::Address;

/// Parses a plaintext address: `host:port` or `unix:/path`. A missing host is this machine.
pub(crate) fn server_address(text: &str) -> Result<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return Ok(Address::Unix(path.into()));
    }
    let plain = text.strip_prefix("http://").unwrap_or(text);
    let host = if plain.starts_with(':') {
        "127.0.0.1"
    } else {
        ""
    };
    format!("{host}{}", plain.trim_end_matches('/'))
        .parse()
        .with_context(|| format!("'{text}' is not plaintext host:port or unix:/path"))
}

/// Returns the address of a server on this machine.
pub(crate) fn tcp_address(address: SocketAddr) -> Address {
    Address::Tcp {
        host: address.ip().to_string(),
        port: address.port(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let address = server_address(text).ok();
        let shown = address.map(|address| address.to_string());
        assert_eq!(shown.as_deref(), expected, "{text}");
    }

    #[test]
    fn addresses_are_read() {
        check("localhost:8081", Some("localhost:8081"));
        check("http://127.0.0.1:1/", Some("127.0.0.1:1"));
        check("[::1]:9", Some("[::1]:9"));
        check(":8081", Some("127.0.0.1:8081"));
        check("unix:/run/a.sock", Some("/run/a.sock"));
        check("unix:///run/a.sock", Some("/run/a.sock"));
        check("localhost", None);
        check("localhost:port", None);
        check("https://localhost:1", None);
    }
}
