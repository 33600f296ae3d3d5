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
use crate::supervise::Life;

/// How long a connection may take to say what it asks for next. Load balancers keep idle ones for a minute, and one that is
/// closed under a request fails it.
const REQUEST_HEAD: Duration = Duration::from_secs(120);

/// Serves `router` until the server drains; each connection is a task of its own.
pub(crate) async fn serve(listener: TcpListener, router: Router, life: Life) {
    loop {
        let accepted = tokio::select! {
            accepted = accept::next(listener.accept()) => accepted,
            () = life.drain.cancelled() => return,
        };
        if let Some((stream, _)) = accepted {
            // A peer that is gone already is noticed at the first read.
            let _ = stream.set_nodelay(true);
            life.tasks.spawn(connection(stream, router.clone(), life.clone()));
        }
    }
}

async fn connection(stream: TcpStream, router: Router, life: Life) {
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
        () = life.drain.cancelled() => {
            // hyper would wait for a first request, and there is none to finish.
            if !asked.load(Relaxed) {
                return;
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = life.stop.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        debug!(%error, "an HTTP connection ended");
    }
}
