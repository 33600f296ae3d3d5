//! Serves HTTP/1 connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::http::Request;
use axum::{BoxError, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_api::Peer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::sleep;
use tonic::codegen::Service as _;
use tracing::{debug, warn};

use super::accept;
use super::bounds::body::{Framing, Http1Body, Kind, Refusal, RequestBody};
use super::bounds::socket::{GuardedSocket, InTurns};
use super::bounds::{
    Bounds, Closed, ConnActivity, ConnState, ConnectionMemory, ConnectionSlot, RateRule,
};
use super::cores::ConnectionCount;
use super::movable_socket::{DetachedSocket, Secured};
use super::tls::PortTlsAcceptor;
use crate::supervise::Supervisor;

/// Time that a connection may stay without a next request. Load balancers keep idle connections for
/// a minute, and a request on a closing connection fails.
const REQUEST_HEAD: Duration = Duration::from_secs(120);
/// Time that a connection has for its first request. A client connects because it has one.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// Maximum of bytes of a request's head. Tokens and queries take less than a tenth of it.
const HEAD: usize = 64 * 1024;
/// A body must arrive at 1.6 KiB a second, as on a slow mobile line, and within a minute.
const BODY: Kind = Kind {
    rule: RateRule {
        window: Duration::from_secs(10),
        least: 16 * 1024,
        windows: 6,
    },
    framing: Framing::Plain,
    refuse,
};

/// A thread that serves connections.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    runtime: Handle,
    router: Router,
    /// Number of connections that the thread has now.
    load: Arc<AtomicUsize>,
}

impl Thread {
    /// Creates a thread on this runtime whose requests `router` answers.
    pub(crate) fn new(runtime: Handle, router: Router) -> Self {
        Self {
            runtime,
            router,
            load: Arc::default(),
        }
    }

    /// Serves one connection in its own task.
    fn take(&self, arrived: AcceptedSocket, asker: PeerConnection, supervisor: &Supervisor) {
        let router = self.router.clone();
        let loaded = ConnectionCount::count(&self.load);
        let tasks = supervisor.tasks.clone();
        let supervisor = supervisor.clone();
        let serve = async move {
            let lost = |error| warn!(%error, "cannot register a connection with its thread");
            match arrived {
                AcceptedSocket::Plain(stream) => match TcpStream::from_std(stream) {
                    Ok(stream) => connection(stream, router, asker, supervisor).await,
                    Err(error) => lost(error),
                },
                AcceptedSocket::Secured(mut stream) => match stream.get_mut().0.attach() {
                    Ok(()) => connection(stream, router, asker, supervisor).await,
                    Err(error) => lost(error),
                },
            }
            drop(loaded);
        };
        tasks.spawn_on(serve, &self.runtime);
    }
}

/// A connection on its way to its thread.
enum AcceptedSocket {
    Plain(std::net::TcpStream),
    Secured(Secured),
}

/// Serves `router` within `bounds` on the current thread until the server drains. Each connection
/// has its own task.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    supervisor: Supervisor,
) {
    serve_on(
        vec![Thread::new(Handle::current(), router)],
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
    threads: Vec<Thread>,
    listener: TcpListener,
    gate: Option<PortTlsAcceptor>,
    bounds: Bounds,
    supervisor: Supervisor,
) {
    let threads: Arc<[Thread]> = threads.into();
    loop {
        let accepted = tokio::select! {
            accepted = accept::next(listener.accept(), &bounds.places) => accepted,
            () = supervisor.drain.cancelled() => return,
        };
        if let Some((stream, peer, place)) = accepted {
            accept::prepare(&stream);
            let peer = Peer(peer.ip());
            let tab = ConnectionMemory::unbounded(bounds.budget.clone());
            let stream = match stream.into_std() {
                Ok(stream) => stream,
                Err(error) => {
                    warn!(%error, "cannot hand a connection to its thread");
                    continue;
                }
            };
            match &gate {
                None => fewest(&threads).take(
                    AcceptedSocket::Plain(stream),
                    PeerConnection { peer, tab, place },
                    &supervisor,
                ),
                Some(gate) => {
                    let threads = threads.clone();
                    let supervisor = supervisor.clone();
                    gate.enter(
                        DetachedSocket::Tcp(stream),
                        place,
                        async move |secured, place| {
                            fewest(&threads).take(
                                AcceptedSocket::Secured(secured),
                                PeerConnection { peer, tab, place },
                                &supervisor,
                            );
                        },
                    );
                }
            }
        }
    }
}

/// Returns the thread with the fewest connections.
fn fewest(threads: &[Thread]) -> &Thread {
    threads
        .iter()
        .min_by_key(|thread| thread.load.load(Relaxed))
        .expect("there is one")
}

/// The address of a client, and the memory and slot of its connection.
struct PeerConnection {
    peer: Peer,
    tab: Arc<ConnectionMemory>,
    place: ConnectionSlot,
}

async fn connection<I>(stream: I, router: Router, asker: PeerConnection, supervisor: Supervisor)
where
    I: AsyncRead + AsyncWrite + Unpin + Send,
{
    let PeerConnection { peer, tab, place } = asker;
    let seat = &place.seat;
    let service = service_fn(|request: Request<Incoming>| {
        seat.set(ConnActivity::Busy);
        let mut request = request.map(|body| RequestBody::new(body, BODY, &tab, seat));
        request.extensions_mut().insert(peer);
        let answer = router.clone().call(request);
        async {
            answer
                .await
                .map(|answer| answer.map(|body| Http1Body::new(body, seat)))
        }
    });
    let connection = builder().serve_connection(
        TokioIo::new(GuardedSocket::new(stream, seat.clone())),
        service,
    );
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = InTurns { seat, connection: connection.as_mut() } => ended,
        () = never_asked(seat) => return,
        () = seat.evicted() => return,
        () = supervisor.drain.cancelled() => {
            // Without a request there is nothing to finish, but hyper would wait for one.
            if seat.standing() == ConnActivity::NoRequest {
                return;
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = InTurns { seat, connection: connection.as_mut() } => ended,
                () = supervisor.stop.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        if error.is_timeout() {
            seat.count(Closed::Silent);
        }
        debug!(%error, "an HTTP connection ended");
    }
}

fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_HEAD)
        .max_header_size(HEAD)
        .max_buf_size(HEAD);
    builder
}

/// Returns if the first request has not come in time.
async fn never_asked(seat: &ConnState) {
    sleep(FIRST_REQUEST).await;
    if seat.standing() != ConnActivity::NoRequest {
        std::future::pending::<()>().await;
    }
    seat.count(Closed::Silent);
}

/// Returns an I/O error whose kind tells readers of bodies the reason.
fn refuse(refusal: Refusal) -> BoxError {
    let (kind, text) = match refusal {
        Refusal::TooSlow => (
            io::ErrorKind::TimedOut,
            "the body arrived too slowly: less than 16 KiB in 10 s, or longer than a minute",
        ),
        Refusal::NoRoom => (
            io::ErrorKind::QuotaExceeded,
            "too many bytes of unfinished bodies",
        ),
    };
    io::Error::new(kind, text).into()
}
