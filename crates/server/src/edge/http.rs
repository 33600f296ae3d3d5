//! Serves HTTP/1 connections.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::Service as _;
use tracing::debug;

use super::accept;
use crate::supervise::Supervisor;

/// How long a connection may stay without a next request. Load balancers keep idle connections for a minute, and a request
/// that meets a closing connection fails.
const REQUEST_HEAD: Duration = Duration::from_secs(120);

/// Serves `router` until the server drains; each connection is a task of its own.
pub(crate) async fn serve(listener: TcpListener, router: Router, supervisor: Supervisor) {
    loop {
        let accepted = tokio::select! {
            accepted = accept::next(listener.accept()) => accepted,
            () = supervisor.drain.cancelled() => return,
        };
        if let Some((stream, _)) = accepted {
            // If the peer is gone already, the first read fails.
            let _ = stream.set_nodelay(true);
            supervisor.tasks.spawn(connection(stream, router.clone(), supervisor.clone()));
        }
    }
}

async fn connection(stream: TcpStream, router: Router, supervisor: Supervisor) {
    let asked = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        asked.store(true, Relaxed);
        router.clone().call(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(REQUEST_HEAD);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = supervisor.drain.cancelled() => {
            // Without a request there is nothing to finish, but hyper would wait for one.
            if !asked.load(Relaxed) {
                return;
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = supervisor.stop.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        debug!(%error, "an HTTP connection ended");
    }
}
