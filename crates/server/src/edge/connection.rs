//! One gRPC connection, from accept to GOAWAY.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tracing::debug;

use crate::rls::grpc::Services;
use crate::settings::ConnectionAge;
use crate::supervise::Supervisor;

/// The most calls of one connection at a time. Envoy opens another connection before it needs more.
const MAX_STREAMS: u32 = 1024;
/// Room for the bodies of calls that arrive together: a thousand small ones, or a large one.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Larger than nearly all messages, so that they arrive without waiting for more window.
const STREAM_WINDOW: u32 = 256 * 1024;

/// How long a connection without a request may stay open after GOAWAY. hyper would wait without a bound for a peer that has
/// not sent the HTTP/2 preface.
const SILENCE: Duration = Duration::from_secs(1);

/// Serves one connection until the peer closes it, its age is reached, or the server drains.
pub(crate) async fn serve<I>(io: I, services: Services, age: ConnectionAge, supervisor: Supervisor)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        asked.store(true, Relaxed);
        services.call(request)
    });
    let connection = builder().serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return log(ended),
        () = supervisor.drain.cancelled() => {}
        () = elapsed(age.limit.map(jittered)) => {}
    }
    // GOAWAY: calls in flight finish, and the peer sends new ones elsewhere.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = connection.as_mut() => log(ended),
        () = supervisor.stop.cancelled() => {}
        () = elapsed(age.grace) => {}
        () = elapsed(Some(SILENCE)), if !asked.load(Relaxed) => {}
    }
}

fn builder() -> http2::Builder<Spawn> {
    let mut builder = http2::Builder::new(Spawn);
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .auto_date_header(false);
    builder
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        // Ports are scanned and peers vanish: an operator can do nothing about it.
        debug!(%error, "a gRPC connection ended");
    }
}

async fn elapsed(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Up to ten per cent more or less, so that connections made together do not end together.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Runs calls on the core of their connection, which waits for them. Calls that outlive the connection end with the core's
/// runtime, which owns them.
#[derive(Debug, Clone, Copy)]
struct Spawn;

impl<F> Executor<F> for Spawn
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        tokio::spawn(call);
    }
}
