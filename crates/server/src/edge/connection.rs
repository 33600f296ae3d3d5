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
use crate::supervise::Life;

/// Most calls of one connection at a time. Envoy opens more connections before it needs more.
const MAX_STREAMS: u32 = 1024;
/// Room for the bodies of calls that arrive together: a thousand small ones, or a large one.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Twice the allowed size of a message is never needed; most fit a frame.
const STREAM_WINDOW: u32 = 256 * 1024;

/// How long a connection that never asked anything may take to go away. hyper would wait for ever for a peer that has not
/// even said that it speaks HTTP/2.
const SILENCE: Duration = Duration::from_secs(1);

/// Serves one connection until the peer closes it, its age is up, or the server drains.
pub(crate) async fn serve<I>(io: I, services: Services, age: ConnectionAge, life: Life)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(Spawn);
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .auto_date_header(false);
    let asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        asked.store(true, Relaxed);
        services.call(request)
    });
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);

    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = life.drain.cancelled() => None,
        () = elapsed(age.limit.map(jittered)) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            // GOAWAY: calls in flight finish, new ones go elsewhere.
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = life.stop.cancelled() => return,
                () = elapsed(age.grace) => return,
                () = elapsed(Some(SILENCE)), if !asked.load(Relaxed) => return,
            }
        }
    };
    if let Err(error) = ended {
        // Ports are scanned and peers vanish: nothing here for an operator to act on.
        debug!(%error, "a gRPC connection ended");
    }
}

async fn elapsed(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Ten percent more or less, so that connections made together do not end together.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Runs calls on the core of their connection. The connection waits for them; what it cannot wait for ends with the core's
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
