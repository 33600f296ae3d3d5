//! The HTTP API under `/v1`: workflows, jobs, queues and limits as JSON.
//!
//! A request goes `edge` (route, who may, body) -> one file for each noun -> the engine, and comes back as JSON.
//!
//! **Invariant:** no rule lives here: outside words become inside words, and back. No environment, and no socket to Redis.

mod activity;
mod clock;
mod edge;
mod events;
mod failures;
mod jobs;
mod limits;
mod live;
mod openapi;
mod opening;
mod overview;
mod page;
mod queues;
mod readiness;
mod routes;
pub mod span;
mod terms;
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

pub use activity::{Activity, Census, Event, MOST_QUEUES, OVERFLOW, QueueSample};
pub use edge::ask::{Access, Host, Peer};
use edge::ask::{Answer, Ask, Context};
use edge::query::Query;
use edge::request_id::{self, RequestId};
use edge::room;
use edge::route::{self, Needs};
pub use edge::tokens::{Role, Tokens};
use edge::{auth, body};
pub use limits::RateLimits;
pub use limits::configuration::loads::{
    ConfigurationSource, InForce, LimitUse, Loads, Mistake, Refused,
};
use opening::Standing;
pub use overview::{History, STEP, Times, Totals};
pub use readiness::Works;
use routes::{ROUTES, dispatch};
pub use traces::{CallSpan, Creations, Exporter, TraceContext, Traces, attempt_context};
pub use workflows::definition::{DefinitionMistake, check_definition};

/// The API of one engine, also while there is none yet. A clone is the same, and so is that for another thread.
#[derive(Debug, Clone)]
pub struct Api {
    context: Arc<Context>,
}

impl Api {
    /// An API for those whom `access` lets in. Calls wait for [`Api::open`].
    #[must_use]
    pub fn new(access: Access, activity: Arc<Activity>, host: Host) -> Self {
        Self {
            context: Arc::new(Context::new(access, activity, host)),
        }
    }

    /// The same API for requests on one of the engine's threads.
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

    /// Answers calls with this reason, until [`Api::open`] or [`Api::await_call`].
    pub fn refuse(&self, reason: impl Into<Arc<str>>) {
        self.context.opening.set(Standing::Refused(reason.into()));
    }

    /// Returns when a call needs the engine. Calls wait for [`Api::open`] or [`Api::refuse`].
    pub async fn await_call(&self) {
        self.context.opening.set(Standing::Unasked);
        self.context.opening.wanted().await;
    }

    /// All of the API, to be served.
    pub fn router(self) -> Router {
        Router::new().fallback(serve).with_state(self)
    }
}

/// No answer but the page is one: whatever is in it, a browser that shows it runs nothing and loads nothing. Pictures bring their own style.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox";

async fn serve(State(api): State<Api>, request: Request<Body>) -> Response {
    let api = &*api.context;
    api.activity.add(Event::Request, 1);
    let (head, body) = request.into_parts();
    let id = RequestId::of(&head.headers);
    // Boxed because it has 10 KB, and the layers around a handler move its future several times.
    let mut response = Box::pin(answer(api, &id, &head, body))
        .await
        .unwrap_or_else(|problem| {
            failures::request(api, &id, &head, &problem);
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

async fn answer(api: &Context, id: &RequestId, head: &Parts, body: Body) -> Answer {
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
    let ask = Ask {
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
    room::keep_answer(&api.rooms.answers, &ask, answer).await
}
