//! The HTTP API under `/v1`: workflows, jobs, queues and limits as JSON.
//!
//! A request goes through `http` (route, authentication, body) to the handler of one noun, and to
//! the engine. The answer is JSON.
//!
//! **Invariant:** no rule of workflows is here. Handlers translate JSON to calls of the engine, and
//! results to JSON. They read no environment and open no connection to Redis.

mod events;
mod http;
mod jobs;
mod limits;
mod page;
mod routes;
mod state;
mod status;
mod views;
mod workers;
mod workflows;

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, header};
use axum::response::Response;
use tidegate_workflow::Engine;

pub use http::auth::{Access, Scope};
pub use http::duration_text;
use http::query::Query;
pub use http::quota::Peer;
use http::request_id::{self, RequestId};
use http::route::{self, StoreRequirement};
pub use http::tokens::{Role, Tokens};
use http::{auth, body};
use routes::{ROUTES, dispatch};
use state::app_state::{AppState, HandlerResult, RequestContext};
pub use state::config_status::{
    ActiveLoad, ConfigurationSource, LimitUse, Loads, Mistake, RefusedLoad,
};
pub use state::history::percentile::LatencyHistogram;
pub use state::history::{GatewayTotals, History, LIMIT_RATES_STEP, STEP};
pub use state::metrics::{
    ApiMetrics, CountedEvent, MAX_QUEUE_SAMPLES, OVERFLOW_QUEUE, QueueSample, WorkflowCounts,
};
pub use state::probe_cache::Availability;
pub use state::rate_limits::RateLimits;
pub use state::server_hooks::{ServerHooks, StoreLocations};
use state::store_gate::StoreState;
pub use state::traces::{CallSpan, Creations, Exporter, TraceContext, Traces, attempt_context};
pub use workflows::definition::DefinitionMistake;
pub use workflows::definition::mistakes::check_definition;

/// HTTP API of one engine, which may be opened later. Clones share everything, and so do handles
/// for other threads.
#[derive(Debug, Clone)]
pub struct Api {
    state: Arc<AppState>,
}

impl Api {
    /// Makes an API for the clients that `access` allows. Calls wait for [`Api::open`].
    #[must_use]
    pub fn new(access: Access, activity: Arc<ApiMetrics>, host: ServerHooks) -> Self {
        Self {
            state: Arc::new(AppState::new(access, activity, host)),
        }
    }

    /// Returns a handle for requests on one of the engine's threads.
    #[must_use]
    pub fn for_thread(&self, thread: usize) -> Self {
        Self {
            state: Arc::new(self.state.for_thread(thread)),
        }
    }

    /// Serves calls with `engine` from now on.
    pub fn open(&self, engine: Engine) {
        self.state.store_gate.open(engine);
    }

    /// Refuses calls with this reason, until [`Api::open`] or [`Api::await_call`].
    pub fn refuse(&self, reason: impl Into<Arc<str>>) {
        self.state.store_gate.set(StoreState::Failed(reason.into()));
    }

    /// Returns when a call needs the engine. Calls wait for [`Api::open`] or [`Api::refuse`].
    pub async fn await_call(&self) {
        self.state.store_gate.set(StoreState::NotRequested);
        self.state.store_gate.requested().await;
    }

    /// Returns the router of the whole API.
    pub fn router(self) -> Router {
        Router::new().fallback(serve).with_state(self)
    }
}

/// Content security policy of every answer but the page: a browser that shows the answer runs and
/// loads nothing. Pictures bring their own style.
const ANSWER_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox";

async fn serve(State(api): State<Api>, request: Request<Body>) -> Response {
    let api = &*api.state;
    api.metrics.add(CountedEvent::Request, 1);
    let (head, body) = request.into_parts();
    let id = RequestId::from_headers(&head.headers);
    let mut response = answer(api, &id, &head, body)
        .await
        .unwrap_or_else(|problem| {
            state::error_log::log_problem(api, &id, &head, &problem);
            problem.response(&id)
        });
    let headers = response.headers_mut();
    headers.insert(request_id::HEADER, id.header());
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        const { HeaderValue::from_static("nosniff") },
    );
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(const { HeaderValue::from_static(ANSWER_POLICY) });
    response
}

/// Answers a request by the handler of its route.
///
/// The future is boxed, because the layers around a handler move it several times. Its type is
/// erased, so that what contains it is compiled without all handlers.
fn answer<'a>(
    api: &'a AppState,
    id: &'a RequestId,
    head: &'a Parts,
    body: Body,
) -> Pin<Box<dyn Future<Output = HandlerResult> + Send + 'a>> {
    Box::pin(async move {
        let matched = route::find(ROUTES, &head.method, head.uri.path())?;
        let token = auth::check(&api.access, &head.headers, matched.route)?;
        if matched.route.needs == StoreRequirement::Engine {
            api.store_gate.wait_until_open(&api.hooks.drain).await?;
        }
        let body = match head.method {
            Method::GET | Method::HEAD => Bytes::new(),
            _ => body::receive(api.access.max_body, &head.headers, body).await?,
        };
        let headers = &head.headers;
        let peer = head.extensions.get().copied();
        let token = token.as_deref();
        let request = RequestContext {
            api,
            matched,
            query: head.uri.query(),
            headers,
            token,
            peer,
            body: &body,
            id,
        };
        if !request.matched.route.has_parameters {
            Query::new(request.query)?.finish()?;
        }
        let answer = dispatch(&request).await?;
        request.reserve_answer(answer).await
    })
}
