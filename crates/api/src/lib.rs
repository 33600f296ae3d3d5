//! The HTTP API under `/v1`: workflows, jobs, queues and limits as JSON.
//!
//! A request goes through `http` (route, authentication, body) to the handler of one noun, and to
//! the engine. The answer is JSON.
//!
//! **Invariant:** no rule of workflows is here. Handlers translate JSON to calls of the engine, and
//! results to JSON. They read no environment and open no connection to Redis.

pub mod duration_text;
mod error_log;
mod events;
mod http;
mod jobs;
mod limits;
mod live;
mod metrics;
mod openapi;
mod overview;
mod page;
mod policies;
mod queues;
mod readiness;
mod routes;
mod store_gate;
mod test_clock;
mod traces;
mod workers;
mod workflows;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, header};
use axum::response::Response;
use tidegate_workflow::Engine;

use http::query::Query;
use http::quota;
pub use http::request::{Access, Peer, ServerHooks};
use http::request::{Answer, AppState, RequestContext};
use http::request_id::{self, RequestId};
use http::route::{self, Needs};
pub use http::tokens::{Role, Tokens};
use http::{auth, body};
pub use limits::RateLimits;
pub use limits::configuration::loads::{
    ConfigurationSource, InForce, LimitUse, Loads, Mistake, Refused,
};
pub use metrics::{Activity, Census, Event, MOST_QUEUES, OVERFLOW, QueueSample};
pub use overview::{History, STEP, Times, Totals};
pub use readiness::Availability;
use routes::{ROUTES, dispatch};
use store_gate::StoreState;
pub use traces::{CallSpan, Creations, Exporter, TraceContext, Traces, attempt_context};
pub use workflows::definition::{DefinitionMistake, check_definition};

/// HTTP API of one engine, which may be opened later. Clones share everything, and so do handles
/// for other threads.
#[derive(Debug, Clone)]
pub struct Api {
    context: Arc<AppState>,
}

impl Api {
    /// Makes an API for the clients that `access` allows. Calls wait for [`Api::open`].
    #[must_use]
    pub fn new(access: Access, activity: Arc<Activity>, host: ServerHooks) -> Self {
        Self {
            context: Arc::new(AppState::new(access, activity, host)),
        }
    }

    /// Returns a handle for requests on one of the engine's threads.
    #[must_use]
    pub fn on(&self, thread: usize) -> Self {
        Self {
            context: Arc::new(self.context.on(thread)),
        }
    }

    /// Serves calls with `engine` from now on.
    pub fn open(&self, engine: Engine) {
        self.context.opening.open(engine);
    }

    /// Refuses calls with this reason, until [`Api::open`] or [`Api::await_call`].
    pub fn refuse(&self, reason: impl Into<Arc<str>>) {
        self.context.opening.set(StoreState::Failed(reason.into()));
    }

    /// Returns when a call needs the engine. Calls wait for [`Api::open`] or [`Api::refuse`].
    pub async fn await_call(&self) {
        self.context.opening.set(StoreState::NotRequested);
        self.context.opening.wanted().await;
    }

    /// Returns the router of the whole API.
    pub fn router(self) -> Router {
        Router::new().fallback(serve).with_state(self)
    }
}

/// Content security policy of every answer but the page: a browser that shows the answer runs and
/// loads nothing. Pictures bring their own style.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox";

async fn serve(State(api): State<Api>, request: Request<Body>) -> Response {
    let api = &*api.context;
    api.activity.add(Event::Request, 1);
    let (head, body) = request.into_parts();
    let id = RequestId::of(&head.headers);
    // The future is boxed because it has 10 KB, and the layers around a handler move it several
    // times.
    let mut response = Box::pin(answer(api, &id, &head, body))
        .await
        .unwrap_or_else(|problem| {
            error_log::request(api, &id, &head, &problem);
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
        .or_insert(const { HeaderValue::from_static(POLICY) });
    response
}

async fn answer(api: &AppState, id: &RequestId, head: &Parts, body: Body) -> Answer {
    let matched = route::find(ROUTES, &head.method, head.uri.path())?;
    let token = auth::check(&api.access, &head.headers, matched.route)?;
    if matched.route.needs == Needs::Engine {
        api.opening.opened(&api.host.drain).await?;
    }
    let body = match head.method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => body::receive(api.access.max_body, &head.headers, body).await?,
    };
    let headers = &head.headers;
    let peer = head.extensions.get().copied();
    let token = token.as_deref();
    let ask = RequestContext {
        api,
        matched,
        query: head.uri.query(),
        headers,
        token,
        peer,
        body: &body,
        id,
    };
    if !ask.matched.route.has_parameters {
        Query::new(ask.query)?.end()?;
    }
    let answer = dispatch(&ask).await?;
    quota::keep_answer(&api.rooms.answers, &ask, answer).await
}
