//! The debug pages and the page of metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::any;
use tidegate_ratelimit::Limiter;

use super::metrics::Metrics;

/// The content type of a page of metrics.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The pages of the debug port, in the order of the index.
const DEBUG_INDEX: &str = "\
/metrics: print out metrics for Prometheus
/rlconfig: print out the currently loaded configuration for debugging
/stats: print out stats
";

/// The debug pages. Every other path shows the index.
pub(crate) fn router(limiter: Limiter, metrics: Arc<Metrics>) -> Router {
    let dump = async move || limiter.configuration().map(|configuration| configuration.dump()).unwrap_or_default();
    Router::new()
        .route("/rlconfig", any(dump))
        .route("/stats", any(async |State(metrics): State<Arc<Metrics>>| metrics.stats()))
        .route("/metrics", any(prometheus_page))
        .fallback(any(async || DEBUG_INDEX))
        .with_state(metrics)
}

/// Only the page of metrics, for the port of Prometheus.
pub(crate) fn prometheus(metrics: Arc<Metrics>, path: &str) -> Router {
    Router::new().route(path, any(prometheus_page)).with_state(metrics)
}

async fn prometheus_page(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, METRICS_TYPE)], metrics.prometheus())
}
