//! Listening sockets. They are bound before anything else, so that errors show early, and opened
//! when the server can answer.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use tracing::warn;

use super::accept::accept_tcp;
use super::bounds::ClientNetwork;
use super::movable_socket::DetachedSocket;
use super::socket_file::SocketFile;
use crate::settings::{Endpoint, GrpcEndpoint, Settings, WorkflowSettings};
use crate::supervise::error::ServeError;

/// Connections that the kernel holds until they are accepted.
const LISTEN_BACKLOG: i32 = 1024;

/// The addresses on which the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC.
    pub grpc: GrpcAddress,
    /// `/json` and `/healthcheck`.
    pub http: SocketAddr,
    /// `/rlconfig`, `/stats`, `/metrics`. `None` if the port could not be bound.
    pub debug: Option<SocketAddr>,
    /// Metrics for Prometheus. `None` if the settings have no address for it.
    pub prometheus: Option<SocketAddr>,
    /// The HTTP API. `None` if it is disabled, or another process has its default port.
    pub api: Option<SocketAddr>,
}

/// The address of gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrpcAddress {
    /// A port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for GrpcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Bound sockets, to which clients cannot connect yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) addresses: Addresses,
    grpc: (BoundSocket, Option<SocketFile>),
    http: BoundSocket,
    debug: Option<BoundSocket>,
    prometheus: Option<BoundSocket>,
    api: Option<BoundSocket>,
    /// Whether the settings have an address for the API.
    api_given: bool,
}

/// A bound socket and its purpose.
#[derive(Debug)]
struct BoundSocket {
    purpose: PortPurpose,
    address: String,
    socket: Socket,
}

/// The purpose of a port.
#[derive(Debug, Clone, Copy)]
struct PortPurpose {
    what: &'static str,
    /// The variable of the port's address.
    variable: &'static str,
    sharing: PortSharing,
}

/// The condition under which another process may listen on the same port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortSharing {
    /// A new process can take over while an old one drains.
    WhileDraining,
    Never,
}

/// Open sockets, to which clients can connect.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) grpc: GrpcListener,
    pub(crate) http: TcpListener,
    pub(crate) debug: Option<TcpListener>,
    pub(crate) prometheus: Option<TcpListener>,
    /// Not registered with a runtime, because the API has its own.
    pub(crate) api: Option<std::net::TcpListener>,
}

/// The source of gRPC connections.
#[derive(Debug)]
pub(crate) enum GrpcListener {
    Tcp(TcpListener),
    /// A Unix socket with its file, which is removed after the last accept.
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
}

impl GrpcListener {
    /// Accepts the next connection, and sets its options.
    pub(crate) async fn accept(&self) -> io::Result<(DetachedSocket, ClientNetwork)> {
        match self {
            Self::Tcp(listener) => {
                let (socket, peer) = accept_tcp(listener).await?;
                Ok((socket, peer.into()))
            }
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok((
                    DetachedSocket::Unix(stream.into_std()?),
                    ClientNetwork::UNIX_SOCKETS,
                ))
            }
        }
    }
}

impl Sockets {
    /// Binds every port of `settings`. A debug port that cannot be bound is only logged. So is a
    /// port of the API that is in use, unless the settings name it.
    pub(crate) fn bind(settings: &Settings) -> Result<Self, ServeError> {
        let purpose = |what, variable| PortPurpose {
            what,
            variable,
            sharing: default_sharing(settings),
        };
        let (grpc, grpc_address) = bind_grpc(&settings.grpc, purpose("gRPC", "GRPC_PORT"))?;
        let (http, http_address) = bind(purpose("HTTP", "PORT"), &settings.http)?;
        let debug = bind(purpose("debug", "DEBUG_PORT"), &settings.debug)
            .map_err(|failure| warn_without_debug(&failure));
        let prometheus = settings.metrics.prometheus.as_ref();
        let prometheus = prometheus
            .map(|(endpoint, _)| bind(purpose("Prometheus", "PROMETHEUS_ADDR"), endpoint))
            .transpose()?;
        let workflows = settings.workflows.as_ref();
        let api_given = workflows.is_some_and(|api| api.address_given);
        let api = match workflows {
            Some(api) => unless_taken(bind_api(api), api_given)?,
            None => None,
        };

        let (debug, debug_address) = debug.ok().unzip();
        let (prometheus, prometheus_address) = prometheus.unzip();
        let (api, api_address) = api.unzip();
        let addresses = Addresses {
            grpc: grpc_address,
            http: http_address,
            debug: debug_address,
            prometheus: prometheus_address,
            api: api_address,
        };
        Ok(Self {
            addresses,
            grpc,
            http,
            debug,
            prometheus,
            api,
            api_given,
        })
    }

    /// Opens the sockets. Must be called within the runtime that accepts.
    pub(crate) fn listen(self) -> Result<Listeners, ServeError> {
        let tcp = |bound: BoundSocket| -> Result<TcpListener, ServeError> {
            Ok(TcpListener::from_std(bound.listen()?.into())?)
        };
        let grpc = match self.grpc {
            (bound, None) => GrpcListener::Tcp(tcp(bound)?),
            (bound, Some(file)) => GrpcListener::Unix {
                listener: UnixListener::from_std(bound.listen()?.into())?,
                _file: file,
            },
        };
        Ok(Listeners {
            grpc,
            http: tcp(self.http)?,
            debug: self.debug.map(tcp).transpose()?,
            prometheus: self.prometheus.map(tcp).transpose()?,
            api: match self.api {
                Some(bound) => unless_taken(bound.listen(), self.api_given)?.map(Into::into),
                None => None,
            },
        })
    }
}

impl BoundSocket {
    fn listen(self) -> Result<Socket, ServeError> {
        // Another process may have bound the same address before either of the two listened.
        match self.socket.listen(LISTEN_BACKLOG) {
            Ok(()) => Ok(self.socket),
            Err(source) => Err(bind_error(self.purpose, self.address, source)),
        }
    }
}

/// Opens the port of the API. Returns `None` if another process has it, or the API is disabled.
///
/// # Errors
/// The system refuses the port for another reason.
pub(crate) fn listen_api(settings: &Settings) -> Result<Option<std::net::TcpListener>, ServeError> {
    let Some(api) = &settings.workflows else {
        return Ok(None);
    };
    match bind_api(api).and_then(|(bound, _)| bound.listen()) {
        Ok(socket) => Ok(Some(socket.into())),
        Err(ServeError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Counters in memory belong to one process: a second process on its ports would double every
/// limit.
fn default_sharing(settings: &Settings) -> PortSharing {
    if settings.redis.is_some() || settings.memcache.is_some() {
        PortSharing::WhileDraining
    } else {
        PortSharing::Never
    }
}

fn bind_error(purpose: PortPurpose, address: String, source: io::Error) -> ServeError {
    let PortPurpose {
        what,
        variable,
        sharing,
    } = purpose;
    let mut advice = String::new();
    if source.kind() == io::ErrorKind::AddrInUse {
        advice = format!("; stop the other process, or set {variable} to another port");
        if sharing == PortSharing::Never {
            advice += ". Counters in memory and workflows in a file are those of one process, so two share a port only with REDIS_URL";
        }
    }
    ServeError::Bind {
        what,
        address,
        source,
        advice,
    }
}

fn warn_without_debug(failure: &ServeError) {
    warn!("{failure}. The server goes on without /metrics, /rlconfig and /stats");
}

fn bind_api(api: &WorkflowSettings) -> Result<(BoundSocket, SocketAddr), ServeError> {
    // The default port is shared with no other server: two servers that happen to have it may use
    // different stores.
    let shared = api.address_given && api.redis.is_some();
    let sharing = if shared {
        PortSharing::WhileDraining
    } else {
        PortSharing::Never
    };
    let variable = "TIDEGATE_HTTP_ADDR";
    bind(
        PortPurpose {
            what: "API (TIDEGATE_HTTP_ADDR)",
            variable,
            sharing,
        },
        &api.address,
    )
}

/// Returns `None`, and logs a warning, if the port of the API is in use and was not `given` by
/// name.
fn unless_taken<T>(port: Result<T, ServeError>, given: bool) -> Result<Option<T>, ServeError> {
    match port {
        Err(ServeError::Bind {
            address, source, ..
        }) if !given && source.kind() == io::ErrorKind::AddrInUse => {
            warn!(
                address,
                "workflows are off: another process, perhaps another tidegate, has the port of the API; limits are served, and \
                 workflows as soon as the port is free. Set TIDEGATE_HTTP_ADDR to another address, or to an empty value if \
                 workflows are not wanted here"
            );
            Ok(None)
        }
        port => port.map(Some),
    }
}

fn bind_grpc(
    endpoint: &GrpcEndpoint,
    purpose: PortPurpose,
) -> Result<((BoundSocket, Option<SocketFile>), GrpcAddress), ServeError> {
    match endpoint {
        GrpcEndpoint::Tcp(endpoint) => {
            let (bound, address) = bind(purpose, endpoint)?;
            Ok(((bound, None), GrpcAddress::Tcp(address)))
        }
        GrpcEndpoint::Unix(path) => {
            let address = path.display().to_string();
            match SocketFile::bind(path) {
                Ok((socket, file)) => {
                    let bound = BoundSocket {
                        purpose,
                        address,
                        socket,
                    };
                    Ok(((bound, Some(file)), GrpcAddress::Unix(path.clone())))
                }
                Err(source) => {
                    let advice = match source.kind() {
                        io::ErrorKind::AddrInUse => {
                            format!(
                                "; the server that listens there, or holds {address}.lock, has it: stop it, or set GRPC_UDS to another path, or \
                                 to nothing to use GRPC_PORT"
                            )
                        }
                        _ => String::new(),
                    };
                    Err(ServeError::Bind {
                        what: purpose.what,
                        address,
                        source,
                        advice,
                    })
                }
            }
        }
    }
}

fn bind(
    purpose: PortPurpose,
    endpoint: &Endpoint,
) -> Result<(BoundSocket, SocketAddr), ServeError> {
    let wanted = SocketAddr::new(endpoint.host, endpoint.port);
    let sharing = purpose.sharing;
    let bound = match bind_tcp(wanted, sharing) {
        // The unspecified address on a machine without IPv6.
        Err(error) if wanted.ip().is_unspecified() && wanted.is_ipv6() && no_ipv6(&error) => {
            bind_tcp(
                SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), endpoint.port),
                sharing,
            )
        }
        bound => bound,
    };
    match bound {
        Ok((socket, address)) => Ok((
            BoundSocket {
                purpose,
                address: address.to_string(),
                socket,
            },
            address,
        )),
        Err(source) => Err(bind_error(purpose, wanted.to_string(), source)),
    }
}

fn bind_tcp(address: SocketAddr, sharing: PortSharing) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if address.port() != 0 && sharing == PortSharing::WhileDraining {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    let bound = socket
        .local_addr()?
        .as_socket()
        .ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket, bound))
}

fn no_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT has no `io::ErrorKind`.
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both bind before either listens, as after a boot: the second learns of it when it opens its ports.
    #[tokio::test]
    async fn of_two_servers_that_start_together_one_has_the_default_port_of_the_api() {
        let variables =
            ["PORT", "GRPC_PORT", "DEBUG_PORT"].map(|name| (name.to_owned(), "0".to_owned()));
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
