//! The HTTP ports: `/json` and `/healthcheck`, the debug pages, and metrics.

mod json;
pub(crate) mod v1;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::any;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_ratelimit::Limiter;
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::Service as _;
use tracing::debug;

use crate::accept;
use crate::call::Calls;
use crate::health::Health;
use crate::life::Life;
use crate::metrics::Metrics;
pub(crate) use v1::{Api, router as api};

/// How long a connection may take to say what it asks for next. Load balancers keep idle ones for a minute, and one that is
/// closed under a request fails it.
const REQUEST_HEAD: Duration = Duration::from_secs(120);

/// What a page of metrics is.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The pages of the debug port, in the order of the index.
const DEBUG_INDEX: &str = "\
/metrics: print out metrics for Prometheus
/rlconfig: print out the currently loaded configuration for debugging
/stats: print out stats
";

/// `/json` and `/healthcheck`.
pub(crate) fn public(calls: Calls, health: Health) -> Router {
    let healthcheck =
        any(
            async move || {
                if health.serving() { (StatusCode::OK, "OK") } else { (StatusCode::INTERNAL_SERVER_ERROR, "") }
            },
        );
    Router::new().merge(json::router(calls)).route("/healthcheck", healthcheck)
}

/// The debug pages; any other path is the index.
pub(crate) fn debug(limiter: Limiter, metrics: Arc<Metrics>) -> Router {
    let dump = async move || limiter.configuration().map(|configuration| configuration.dump()).unwrap_or_default();
    Router::new()
        .route("/rlconfig", any(dump))
        .route("/stats", any(async |State(metrics): State<Arc<Metrics>>| metrics.stats()))
        .route("/metrics", any(prometheus_page))
        .fallback(any(async || DEBUG_INDEX))
        .with_state(metrics)
}

/// Metrics on a port of their own.
pub(crate) fn prometheus(metrics: Arc<Metrics>, path: &str) -> Router {
    Router::new().route(path, any(prometheus_page)).with_state(metrics)
}

async fn prometheus_page(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, METRICS_TYPE)], metrics.prometheus())
}

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
