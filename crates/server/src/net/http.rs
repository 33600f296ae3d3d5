//! Serves HTTP/1 connections.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_api::Peer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tonic::codegen::Service as _;
use tracing::{debug, warn};

use super::accept::{AcceptedConnection, ConnectionCount, accept_all, accept_tcp};
use super::bounds::body::{BodyKind, Framing, Http1Body, RequestBody};
use super::bounds::socket::{CountPolls, GuardedSocket};
use super::bounds::{
    CloseReason, ConnActivity, ConnState, ConnectionMemory, ConnectionSlot, PortBounds, RateRule,
};
use super::movable_socket::MovableSocket;
use super::tls::PortTlsAcceptor;
use crate::supervise::Supervisor;

/// Time that a connection may stay without a next request. Load balancers keep idle connections for
/// a minute, and a request on a closing connection fails.
const NEXT_REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Time that a connection has for its first request. A client connects because it has one.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum of bytes of a request's head. Tokens and queries take less than a tenth of it.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// A body must arrive at 1.6 KiB a second, as on a slow mobile line, and within a minute.
const BODY_KIND: BodyKind = BodyKind {
    rule: RateRule {
        window: Duration::from_secs(10),
        min_bytes: 16 * 1024,
        max_windows: 6,
    },
    framing: Framing::Plain,
};

/// A thread that serves connections.
#[derive(Debug, Clone)]
pub(crate) struct HttpThread {
    runtime: Handle,
    router: Router,
    /// Number of connections that the thread has now.
    load: Arc<AtomicUsize>,
}

impl HttpThread {
    /// Creates a thread on this runtime whose requests `router` answers.
    pub(crate) fn new(runtime: Handle, router: Router) -> Self {
        Self {
            runtime,
            router,
            load: Arc::default(),
        }
    }

    /// Serves one connection in its own task.
    fn spawn_connection(
        &self,
        socket: AcceptedConnection,
        peer_connection: PeerConnection,
        supervisor: &Supervisor,
    ) {
        let router = self.router.clone();
        let connection_count = ConnectionCount::count(&self.load);
        let tasks = supervisor.tasks.clone();
        let supervisor = supervisor.clone();
        let serve = async move {
            let log_error = |error| warn!(%error, "cannot register a connection with its thread");
            match socket {
                AcceptedConnection::Plain(socket) => match MovableSocket::register(socket) {
                    Ok(stream) => {
                        serve_connection(stream, router, peer_connection, supervisor).await
                    }
                    Err(error) => log_error(error),
                },
                AcceptedConnection::Secured(mut stream) => match stream.get_mut().0.attach() {
                    Ok(()) => serve_connection(stream, router, peer_connection, supervisor).await,
                    Err(error) => log_error(error),
                },
            }
            drop(connection_count);
        };
        tasks.spawn_on(serve, &self.runtime);
    }
}

/// Serves `router` within `bounds` on the current thread until the server drains. Each connection
/// has its own task.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: PortBounds,
    supervisor: Supervisor,
) {
    serve_on(
        vec![HttpThread::new(Handle::current(), router)],
        listener,
        None,
        bounds,
        supervisor,
    )
    .await;
}

/// Sends every connection that `bounds` admit to the thread with the fewest, until the server
/// drains. With an acceptor, the TLS handshake comes first.
pub(crate) async fn serve_on(
    threads: Vec<HttpThread>,
    listener: TcpListener,
    acceptor: Option<PortTlsAcceptor>,
    bounds: PortBounds,
    supervisor: Supervisor,
) {
    let threads: Arc<[HttpThread]> = threads.into();
    let tasks = supervisor.clone();
    let PortBounds { table, budget } = bounds;
    let serve = move |socket, peer: SocketAddr, slot| {
        let peer_connection = PeerConnection {
            peer: Peer(peer.ip()),
            memory: ConnectionMemory::unbounded(budget.clone()),
            slot,
        };
        least_loaded(&threads).spawn_connection(socket, peer_connection, &tasks);
        ready(())
    };
    accept_all(
        || accept_tcp(&listener),
        acceptor,
        &table,
        &supervisor,
        serve,
    )
    .await;
}

/// Returns the thread with the fewest connections.
fn least_loaded(threads: &[HttpThread]) -> &HttpThread {
    threads
        .iter()
        .min_by_key(|thread| thread.load.load(Relaxed))
        .expect("there is one")
}

/// The address of a client, and the memory and slot of its connection.
struct PeerConnection {
    peer: Peer,
    memory: Arc<ConnectionMemory>,
    slot: ConnectionSlot,
}

async fn serve_connection<I>(
    stream: I,
    router: Router,
    peer_connection: PeerConnection,
    supervisor: Supervisor,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send,
{
    let PeerConnection { peer, memory, slot } = peer_connection;
    let conn_state = &slot.conn_state;
    let service = service_fn(|request: Request<Incoming>| {
        conn_state.set_activity(ConnActivity::Busy);
        let mut request =
            request.map(|body| RequestBody::new(body, BODY_KIND, &memory, conn_state));
        request.extensions_mut().insert(peer);
        let answer = router.clone().call(request);
        async {
            answer
                .await
                .map(|answer| answer.map(|body| Http1Body::new(body, conn_state)))
        }
    });
    let connection = builder().serve_connection(
        TokioIo::new(GuardedSocket::new(stream, conn_state.clone())),
        service,
    );
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = CountPolls { conn_state, connection: connection.as_mut() } => ended,
        () = until_first_request_timeout(conn_state) => return,
        () = conn_state.evicted() => return,
        () = supervisor.drain.cancelled() => {
            // Without a request there is nothing to finish, but hyper would wait for one.
            if conn_state.activity() == ConnActivity::NoRequest {
                return;
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = CountPolls { conn_state, connection: connection.as_mut() } => ended,
                () = supervisor.stop.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        if error.is_timeout() {
            conn_state.count_close(CloseReason::NoRequest);
        }
        debug!(%error, "an HTTP connection ended");
    }
}

fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(NEXT_REQUEST_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
}

/// Returns if the first request has not come in time.
async fn until_first_request_timeout(conn_state: &ConnState) {
    sleep(FIRST_REQUEST_TIMEOUT).await;
    if conn_state.activity() != ConnActivity::NoRequest {
        std::future::pending::<()>().await;
    }
    conn_state.count_close(CloseReason::NoRequest);
}
