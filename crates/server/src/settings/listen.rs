//! Addresses to listen on, and the maximum age of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use super::read::Values;

pub(crate) mod tls;

/// An address and a port to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub host: IpAddr,
    /// The port. 0 lets the system choose one.
    pub port: u16,
}

/// Address of the gRPC server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrpcEndpoint {
    /// A port.
    Tcp(Endpoint),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Maximum age of a gRPC connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionAge {
    /// Age at which the server sends GOAWAY. None for no limit.
    pub limit: Option<Duration>,
    /// Time for calls in flight after that. None for no limit.
    pub grace: Option<Duration>,
}

pub(super) fn grpc(values: &mut Values) -> GrpcEndpoint {
    match values.text("GRPC_UDS") {
        path if path.is_empty() => GrpcEndpoint::Tcp(endpoint(values, "GRPC_HOST", "GRPC_PORT")),
        path => {
            for name in ["GRPC_HOST", "GRPC_PORT"]
                .into_iter()
                .filter(|name| values.given.contains(name))
                .collect::<Vec<_>>()
            {
                values.warnings.push(format!(
                    "{name} has no effect: GRPC_UDS={path} takes the place of the port; set GRPC_UDS to nothing to use the port"
                ));
            }
            GrpcEndpoint::Unix(path.into())
        }
    }
}

pub(super) fn connection_age(values: &Values) -> ConnectionAge {
    ConnectionAge {
        limit: values.duration_unless_zero("GRPC_MAX_CONNECTION_AGE"),
        grace: values.duration_unless_zero("GRPC_MAX_CONNECTION_AGE_GRACE"),
    }
}

/// The endpoint of the two variables `host` and `port`.
pub(super) fn endpoint(values: &mut Values, host: &'static str, port: &'static str) -> Endpoint {
    let text = values.text(host);
    let expected = "expected an IP address, or a host name that resolves to one";
    let address = values.reported(host, &text, resolve(&text).ok_or(expected));
    Endpoint {
        host: address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        port: values.integer(port, 0..=65_535) as u16,
    }
}

/// Parses `host:port`.
pub(super) fn host_and_port(text: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    Some(Endpoint {
        host: resolve(host)?,
        port: port.parse().ok()?,
    })
}

/// The IP address of `host`. As in Go, an empty host means all addresses.
fn resolve(host: &str) -> Option<IpAddr> {
    match host {
        "" => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => host
            .parse()
            .ok()
            .or_else(|| Some((host, 0).to_socket_addrs().ok()?.next()?.ip())),
    }
}
