//! Sockets. They are bound before anything else, so that mistakes show early, and opened when the server can answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use tracing::{error, warn};

use crate::edge::cores::Listener;
use crate::error::ServeError;
use crate::settings::{Endpoint, GrpcEndpoint, Settings, Workflows};

/// The port of the API, for people.
const API: &str = "API (TIDEGATE_HTTP_ADDR)";
/// Connections the kernel holds until they are accepted.
const BACKLOG: i32 = 1024;

/// Where the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC.
    pub grpc: GrpcAddress,
    /// `/json` and `/healthcheck`.
    pub http: SocketAddr,
    /// `/rlconfig`, `/stats`, `/metrics`. None: the port could not be bound.
    pub debug: Option<SocketAddr>,
    /// Metrics for Prometheus. None: not asked for.
    pub prometheus: Option<SocketAddr>,
    /// The HTTP API. None: not wanted.
    pub api: Option<SocketAddr>,
}

/// Where gRPC is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrpcAddress {
    /// A port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Bound sockets. Clients cannot connect to them yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) addresses: Addresses,
    grpc: Socket,
    http: Socket,
    debug: Option<Socket>,
    prometheus: Option<Socket>,
    api: Option<Socket>,
    /// Whether the address of the API was asked for.
    api_given: bool,
}

/// Open sockets. Clients can connect to them.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) grpc: Listener,
    pub(crate) http: TcpListener,
    pub(crate) debug: Option<TcpListener>,
    pub(crate) prometheus: Option<TcpListener>,
    /// Not registered with a runtime: the API has one of its own.
    pub(crate) api: Option<std::net::TcpListener>,
}

impl Sockets {
    /// Binds every port of `settings`. A debug port that cannot be bound is only logged, and so is a port of the API that is taken,
    /// unless it was asked for.
    pub(crate) fn bind(settings: &Settings) -> Result<Self, ServeError> {
        let (grpc, grpc_address) = bind_grpc(&settings.grpc)?;
        let (http, http_address) = bind("HTTP", &settings.http, Sharing::WhileDraining)?;
        let debug = bind("debug", &settings.debug, Sharing::WhileDraining).map_err(|failure| error!("{failure}")).ok();
        let prometheus = settings.metrics.prometheus.as_ref();
        let prometheus =
            prometheus.map(|(endpoint, _)| bind("Prometheus", endpoint, Sharing::WhileDraining)).transpose()?;
        let api_given = settings.workflows.as_ref().is_some_and(|api| api.address_given);
        let api = settings.workflows.as_ref().map(bind_api).transpose()?.flatten();

        let (debug, debug_address) = debug.unzip();
        let (prometheus, prometheus_address) = prometheus.unzip();
        let (api, api_address) = api.unzip();
        let addresses = Addresses {
            grpc: grpc_address,
            http: http_address,
            debug: debug_address,
            prometheus: prometheus_address,
            api: api_address,
        };
        Ok(Self { addresses, grpc, http, debug, prometheus, api, api_given })
    }

    /// Opens the sockets. Must be called within the runtime that accepts.
    pub(crate) fn listen(self) -> Result<Listeners, ServeError> {
        let api_address = self.addresses.api;
        let tcp = |socket: Socket| -> io::Result<TcpListener> {
            socket.listen(BACKLOG)?;
            TcpListener::from_std(socket.into())
        };
        let grpc = match &self.addresses.grpc {
            GrpcAddress::Tcp(_) => Listener::Tcp(tcp(self.grpc)?),
            GrpcAddress::Unix(_) => {
                self.grpc.listen(BACKLOG)?;
                Listener::Unix(UnixListener::from_std(self.grpc.into())?)
            }
        };
        Ok(Listeners {
            grpc,
            http: tcp(self.http)?,
            debug: self.debug.map(tcp).transpose()?,
            prometheus: self.prometheus.map(tcp).transpose()?,
            api: match (self.api, api_address) {
                (Some(socket), Some(address)) => {
                    // Another process may have bound the same address before either listened.
                    let opened = socket.listen(BACKLOG).map_err(|source| refused(API, address, source));
                    unless_taken(opened.map(|()| socket), self.api_given)?.map(Into::into)
                }
                _ => None,
            },
        })
    }
}

impl Addresses {
    /// Removes the file of a Unix socket.
    pub(crate) fn clean_up(&self) {
        if let GrpcAddress::Unix(path) = &self.grpc {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Binds the port of the API. None: another process has it, and nobody asked for it by name.
fn bind_api(settings: &Workflows) -> Result<Option<(Socket, SocketAddr)>, ServeError> {
    // Two servers on one port would each get half of the requests, and without Redis each has its own workflows.
    unless_taken(bind(API, &settings.address, Sharing::Never), settings.address_given)
}

/// None, with a warning: the port of the API is taken, and it was not `given` by name.
fn unless_taken<T>(port: Result<T, ServeError>, given: bool) -> Result<Option<T>, ServeError> {
    match port {
        Err(ServeError::Bind { address, source, .. }) if !given && source.kind() == io::ErrorKind::AddrInUse => {
            warn!(
                address,
                "workflows are off: another process, perhaps another tidegate, has the port of the API; limits are served. Set \
                 TIDEGATE_HTTP_ADDR to another address, or to an empty value if workflows are not wanted here"
            );
            Ok(None)
        }
        port => port.map(Some),
    }
}

/// When another process may listen on the same port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// While it drains: a new process can take over from an old one.
    WhileDraining,
    Never,
}

fn bind_grpc(endpoint: &GrpcEndpoint) -> Result<(Socket, GrpcAddress), ServeError> {
    match endpoint {
        GrpcEndpoint::Tcp(endpoint) => {
            let (socket, address) = bind("gRPC", endpoint, Sharing::WhileDraining)?;
            Ok((socket, GrpcAddress::Tcp(address)))
        }
        GrpcEndpoint::Unix(path) => Ok((bind_unix(path)?, GrpcAddress::Unix(path.clone()))),
    }
}

fn bind(what: &'static str, endpoint: &Endpoint, sharing: Sharing) -> Result<(Socket, SocketAddr), ServeError> {
    let wanted = SocketAddr::new(endpoint.host, endpoint.port);
    let bound = match bind_tcp(wanted, sharing) {
        // "Every address" on a machine without IPv6.
        Err(error) if wanted.ip().is_unspecified() && wanted.is_ipv6() && no_ipv6(&error) => {
            bind_tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), endpoint.port), sharing)
        }
        bound => bound,
    };
    bound.map_err(|source| refused(what, wanted, source))
}

fn refused(what: &'static str, address: SocketAddr, source: io::Error) -> ServeError {
    ServeError::Bind { what, address: address.to_string(), source }
}

fn bind_tcp(address: SocketAddr, sharing: Sharing) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if address.port() != 0 && sharing == Sharing::WhileDraining {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket, bound))
}

fn no_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT has no `io::ErrorKind`.
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}

fn bind_unix(path: &Path) -> Result<Socket, ServeError> {
    let bind = || {
        let address = SockAddr::unix(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.bind(&address) {
            // The socket of a process that has ended refuses connections. One that accepts them belongs to a running process.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(&address) => {
                std::fs::remove_file(path)?;
                socket.bind(&address)?;
            }
            bound => bound?,
        }
        Ok(socket)
    };
    bind().map_err(|source| ServeError::Bind { what: "gRPC", address: path.display().to_string(), source })
}

fn is_dead(address: &SockAddr) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    Socket::new(Domain::UNIX, Type::STREAM, None).is_ok_and(|socket| socket.connect(address).is_err_and(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both bind before either listens, as after a boot: the second learns of it when it opens its ports.
    #[tokio::test]
    async fn of_two_servers_that_start_together_one_has_the_default_port_of_the_api() {
        let variables = ["PORT", "GRPC_PORT", "DEBUG_PORT"].map(|name| (name.to_owned(), "0".to_owned()));
        let mut settings = Settings::parse(&variables.into()).unwrap();
        let bind = |port: u16, settings: &mut Settings| {
            settings.workflows.as_mut().unwrap().address.port = port;
            Sockets::bind(settings).unwrap()
        };
        let first = bind(0, &mut settings);
        let port = first.addresses.api.unwrap().port();
        let second = bind(port, &mut settings);
        let first = first.listen().unwrap();
        let second = second.listen().unwrap();
        assert!(first.api.is_some() && second.api.is_none());
    }
}
