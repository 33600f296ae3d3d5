//! Connections to other servers that speak gRPC.

mod error_socket;
mod overhead;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tidegate_pipeline::dial_any;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;

use crate::quote::{REASON, quoted};
use crate::tls::{CertificateFileError, PeerTls};
use error_socket::{Cause, ErrorSocket};
pub(crate) use overhead::OverheadBytes;
use overhead::OverheadLimit;

/// The longest wait for a name to be looked up, for one of its addresses to take a connection, for TLS, and for HTTP/2.
const STEP: Duration = Duration::from_secs(5);
/// A host that has gone is noticed after about a minute, by the kernel alone.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);
/// The longest wait for the answer to a ping.
const PONG: Duration = Duration::from_secs(20);
/// What a stream, and a connection, may have sent that was not read yet.
const WINDOW: u32 = 1 << 20;
/// The most bytes of the headers of an answer.
const HEADERS: u32 = 16 * 1024;

/// Another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// None: not encrypted.
    pub tls: Option<PeerTls>,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    #[error("{}", flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Certificates { flaws: Vec<CertificateFileError> },
    #[error("the name {host} cannot be looked up: {reason}")]
    Name { host: String, reason: String },
    #[error("{host} cannot be reached: {reason}")]
    Address { host: String, reason: String },
    #[error("TLS with {host} failed: {reason}")]
    Tls { host: String, reason: String },
    #[error("what answers at {host} does not speak HTTP/2: {reason}")]
    Protocol { host: String, reason: String },
}

/// A connection for calls, and the task that reads and writes it. Dropping the connection ends the task.
#[derive(Debug)]
pub(crate) struct GrpcChannel {
    requests: SendRequest<Body>,
    end: Option<End>,
    _task: AbortOnDropHandle<()>,
}

/// How a connection ended. A call on it only knows that it did.
#[derive(Debug)]
pub(crate) struct End {
    /// Closed when nothing is read any more.
    over: oneshot::Receiver<Infallible>,
    cause: Cause,
}

impl End {
    /// Why the socket failed. None: it did not.
    ///
    /// Takes a bounded time.
    pub(crate) async fn reason(self) -> Option<String> {
        let _ = timeout(STEP, self.over).await;
        self.cause.get().cloned()
    }
}

impl GrpcChannel {
    /// How this connection ends, for the first who asks.
    pub(crate) fn end(&mut self) -> Option<End> {
        self.end.take()
    }
}

impl Peer {
    /// What calls to it begin with.
    pub(crate) fn origin(&self) -> Uri {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        let origin = Uri::builder()
            .scheme(scheme)
            .authority(format!("{host}:{}", self.port))
            .path_and_query("/");
        origin.build().unwrap_or_default()
    }

    /// Connects. Certificates are read each time. When the server is silent for `ping`, it is asked whether it is there. When it sends
    /// too much `noise`, the connection ends.
    ///
    /// Takes a bounded time. Dropped half way, it leaves nothing behind.
    pub(crate) async fn connect(
        &self,
        ping: Option<Duration>,
        noise: OverheadBytes,
    ) -> Result<GrpcChannel, ConnectError> {
        let host = self.host.clone();
        let socket = self.socket().await?;
        let Some(tls) = &self.tls else {
            return self.converse(OverheadLimit::new(socket, noise), ping).await;
        };
        let config = tls
            .load()
            .map_err(|flaws| ConnectError::Certificates { flaws })?;
        let failed = |reason: String| ConnectError::Tls {
            host: host.clone(),
            reason,
        };
        let name = match &tls.name {
            Some(name) => name.clone(),
            None => {
                ServerName::try_from(host.clone()).map_err(|error| failed(error.to_string()))?
            }
        };
        let handshake = TlsConnector::from(config).connect(name, socket);
        let socket = within(STEP, handshake).await.map_err(failed)?;
        self.converse(OverheadLimit::new(socket, noise), ping).await
    }

    async fn socket(&self) -> Result<TcpStream, ConnectError> {
        let failed = |reason: String| ConnectError::Name {
            host: self.host.clone(),
            reason,
        };
        let found = within(STEP, lookup_host((&*self.host, self.port)))
            .await
            .map_err(failed)?;
        let addresses: Vec<SocketAddr> = found.collect();
        let unreached = |reason| match &addresses[..] {
            [address] => ConnectError::Address {
                host: address.to_string(),
                reason,
            },
            _ => ConnectError::Address {
                host: self.host.clone(),
                reason,
            },
        };
        let socket = within(STEP, dial_any(&addresses))
            .await
            .map_err(unreached)?;
        keep_alive(&socket);
        Ok(socket)
    }

    async fn converse<I>(
        &self,
        socket: I,
        ping: Option<Duration>,
    ) -> Result<GrpcChannel, ConnectError>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (socket, cause) = ErrorSocket::new(socket);
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_header_list_size(HEADERS);
        builder
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        if let Some(ping) = ping {
            builder
                .keep_alive_interval(ping)
                .keep_alive_timeout(PONG.min(ping));
        }
        let agreed = within(STEP, builder.handshake(TokioIo::new(socket))).await;
        let (requests, connection) = agreed.map_err(|reason| ConnectError::Protocol {
            host: self.host.clone(),
            reason,
        })?;
        // Its end is the end of the calls on it.
        let (held, over) = oneshot::channel();
        let task = tokio::spawn(async move {
            let _held = held;
            drop(connection.await);
        });
        Ok(GrpcChannel {
            requests,
            end: Some(End { over, cause }),
            _task: AbortOnDropHandle::new(task),
        })
    }
}

/// A name or address, and a port. The form that gRPC libraries take with a scheme for looking names up means the same.
pub(crate) fn host_and_port(text: &str) -> Option<(String, u16)> {
    let text = text
        .strip_prefix("dns:///")
        .or_else(|| text.strip_prefix("passthrough:///"))
        .unwrap_or(text);
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None if host.contains([':', '/', '@']) => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// The result of `work`, with its failure in words.
async fn within<T, E: Error + 'static>(
    bound: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(bound, work).await {
        Ok(done) => done.map_err(|error| quoted(&reason(&error), REASON)),
        Err(_) => Err(format!("no answer within {} s", bound.as_secs())),
    }
}

fn keep_alive(socket: &TcpStream) {
    let (idle, interval, retries) = KEEPALIVE;
    let keepalive = TcpKeepalive::new()
        .with_time(idle)
        .with_interval(interval)
        .with_retries(retries);
    let socket = SockRef::from(socket);
    // Without them, a connection works, too.
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_nodelay(true);
}

/// Why a call failed: the beginning of what the server said, or what happened to the connection.
pub(crate) fn failure(status: &Status) -> String {
    let cause = reason(status);
    let said = cause == status.to_string();
    quoted(
        &if said {
            format!("{:?}: {}", status.code(), status.message())
        } else {
            cause
        },
        REASON,
    )
}

/// What is behind an error. Those of libraries only say which of their parts failed. The system's are wrapped in others.
fn reason(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    loop {
        // An I/O error does not name the error that it wraps as its source.
        let wrapped = last.downcast_ref().and_then(io::Error::get_ref);
        match wrapped
            .map(|error| error as &(dyn Error + 'static))
            .or_else(|| last.source())
        {
            Some(next) => last = next,
            None => return last.to_string(),
        }
    }
}

impl Service<Request<Body>> for GrpcChannel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.requests.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.requests.send_request(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_host_and_a_port() {
        for (text, expected) in [
            ("envoy-gateway:18001", Some(("envoy-gateway", 18001))),
            ("localhost:18000", Some(("localhost", 18000))),
            ("[::1]:1", Some(("::1", 1))),
            ("dns:///a.b:1", Some(("a.b", 1))),
            ("passthrough:///a:1", Some(("a", 1))),
            ("a", None),
            (":1", None),
            ("a:0", None),
            ("a:70000", None),
            ("::1:1", None),
            ("http://a:1", None),
            ("unix:///a", None),
            ("name@a:1", None),
        ] {
            assert_eq!(
                host_and_port(text),
                expected.map(|(host, port)| (host.to_owned(), port)),
                "{text}"
            );
        }
    }
}
