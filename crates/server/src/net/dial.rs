//! Connections to other servers over gRPC.

mod server_socket;

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

use crate::base::text::{MAX_REASON_CHARS, quoted};
use crate::settings::GrpcPeer;
use crate::tls::CertificateFileError;
pub(crate) use server_socket::OverheadBytes;
use server_socket::{Cause, ServerSocket};

/// Maximum of time for each step of a connect: DNS look-up, TCP connect, TLS handshake, HTTP/2
/// handshake.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time, interval and number of TCP keepalive probes. The kernel notices a vanished host after
/// about a minute.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);
/// Maximum of time for the answer to a ping.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);
/// Flow-control window of a stream, and of a connection: bytes that may be sent before they are
/// read.
const WINDOW_BYTES: u32 = 1 << 20;
/// Maximum of bytes of the headers of an answer.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// The reason why there is no connection.
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
    end: Option<ConnectionEnd>,
    _task: AbortOnDropHandle<()>,
}

/// The end of a connection. A call on it fails without the cause.
#[derive(Debug)]
pub(crate) struct ConnectionEnd {
    /// Closed when the connection task has ended.
    closed: oneshot::Receiver<Infallible>,
    cause: Cause,
}

impl ConnectionEnd {
    /// Returns the reason if the socket failed.
    ///
    /// Takes a bounded time.
    pub(crate) async fn failure_reason(self) -> Option<String> {
        let _ = timeout(STEP_TIMEOUT, self.closed).await;
        self.cause.get().cloned()
    }
}

impl GrpcChannel {
    /// Returns the end of this connection, once.
    pub(crate) fn take_end(&mut self) -> Option<ConnectionEnd> {
        self.end.take()
    }
}

impl GrpcPeer {
    /// The scheme and authority of calls to this server.
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

    /// Connects, and reads certificates each time. If the server is silent for `ping`, it gets a
    /// ping. If it sends more than `overhead` allows, the connection ends.
    ///
    /// Takes a bounded time. A dropped future leaves nothing behind.
    pub(crate) async fn connect(
        &self,
        ping: Option<Duration>,
        overhead: OverheadBytes,
    ) -> Result<GrpcChannel, ConnectError> {
        let host = self.host.clone();
        let socket = self.socket().await?;
        let Some(tls) = &self.tls else {
            return self.handshake(socket, overhead, ping).await;
        };
        let config = tls
            .load()
            .map_err(|flaws| ConnectError::Certificates { flaws })?;
        let connect_error = |reason: String| ConnectError::Tls {
            host: host.clone(),
            reason,
        };
        let name = match &tls.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.clone())
                .map_err(|error| connect_error(error.to_string()))?,
        };
        let handshake = TlsConnector::from(config).connect(name, socket);
        let socket = with_timeout(STEP_TIMEOUT, handshake)
            .await
            .map_err(connect_error)?;
        self.handshake(socket, overhead, ping).await
    }

    async fn socket(&self) -> Result<TcpStream, ConnectError> {
        let connect_error = |reason: String| ConnectError::Name {
            host: self.host.clone(),
            reason,
        };
        let found = with_timeout(STEP_TIMEOUT, lookup_host((&*self.host, self.port)))
            .await
            .map_err(connect_error)?;
        let addresses: Vec<SocketAddr> = found.collect();
        let address_error = |reason| ConnectError::Address {
            host: match &addresses[..] {
                [address] => address.to_string(),
                _ => self.host.clone(),
            },
            reason,
        };
        let socket = with_timeout(STEP_TIMEOUT, dial_any(&addresses))
            .await
            .map_err(address_error)?;
        keep_alive(&socket);
        Ok(socket)
    }

    async fn handshake<I>(
        &self,
        socket: I,
        overhead: OverheadBytes,
        ping: Option<Duration>,
    ) -> Result<GrpcChannel, ConnectError>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (socket, cause) = ServerSocket::new(socket, overhead);
        let handshake = builder(ping).handshake(TokioIo::new(socket));
        let agreed = with_timeout(STEP_TIMEOUT, handshake).await;
        let (requests, connection) = agreed.map_err(|reason| ConnectError::Protocol {
            host: self.host.clone(),
            reason,
        })?;
        // The channel closes when the connection ends, and with it all calls.
        let (task_end, closed) = oneshot::channel();
        let task = tokio::spawn(async move {
            let _held = task_end;
            drop(connection.await);
        });
        Ok(GrpcChannel {
            requests,
            end: Some(ConnectionEnd { closed, cause }),
            _task: AbortOnDropHandle::new(task),
        })
    }
}

/// The settings of HTTP/2 for a connection that is pinged at the interval `ping`.
fn builder(ping: Option<Duration>) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    if let Some(ping) = ping {
        builder
            .keep_alive_interval(ping)
            .keep_alive_timeout(PONG_TIMEOUT.min(ping));
    }
    builder
}

/// Runs `work` for at most `bound`. A failure is returned as text.
async fn with_timeout<T, E: Error + 'static>(
    bound: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(bound, work).await {
        Ok(done) => done.map_err(|error| quoted(&innermost_cause(&error), MAX_REASON_CHARS)),
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
    // A connection works without these options, too.
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_nodelay(true);
}

/// Describes the failure of a call: the beginning of the server's message, or the failure of the
/// connection.
pub(crate) fn call_failure(status: &Status) -> String {
    let cause = innermost_cause(status);
    let is_server_message = cause == status.to_string();
    quoted(
        &if is_server_message {
            format!("{:?}: {}", status.code(), status.message())
        } else {
            cause
        },
        MAX_REASON_CHARS,
    )
}

/// Returns the innermost cause of an error. Errors of libraries only name the part that failed, and
/// wrap system errors.
fn innermost_cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    loop {
        // An I/O error does not return the error that it wraps as its source.
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
