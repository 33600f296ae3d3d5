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
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_workflow::Engine;
#[cfg(test)]
use utoipa::ToSchema;

pub use activity::{Activity, Census, Event, MOST_QUEUES, OVERFLOW, QueueSample};
pub use edge::ask::{Access, Host, Peer};
use edge::ask::{Answer, Ask, Context};
use edge::json;
use edge::query::Query;
use edge::request_id::{self, RequestId};
use edge::room;
use edge::route::{self, Call};
pub use edge::tokens::{Role, Tokens};
use edge::{auth, body};
use jobs::{claims, leases, reports};
pub use limits::RateLimits;
pub use limits::configuration::loads::{
    ConfigurationSource, InForce, LimitUse, Loads, Mistake, Refused,
};
use limits::{check, configuration, overrides, top, waiting};
use opening::Standing;
pub use overview::{History, STEP, Times, Totals};
use page::{files, session};
pub use readiness::Works;
pub use traces::{CallSpan, Creations, Exporter, TraceContext, Traces, attempt_context};
pub use workflows::definition::{DefinitionMistake, check_definition};
use workflows::{act, bulk, create, graph, list, show};

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
    let matched = route::find(&head.method, head.uri.path())?;
    let token = auth::check(&api.access, &head.headers, matched.route)?;
    if needs_engine(matched.route.call) {
        api.opening.opened(&api.host.drain).await?;
    }
    let body = match head.method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => body::receive(api.access.max_body, &head.headers, body).await?,
    };
    let (headers, peer) = (&head.headers, head.extensions.get().copied());
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
    let answer = dispatch(&ask).await?;
    room::keep_answer(&api.rooms.answers, &ask, answer).await
}

/// Whether a call has parameters after the question mark, which it then reads itself.
const fn has_parameters(call: Call) -> bool {
    match call {
        Call::List
        | Call::Count
        | Call::ByKey
        | Call::Show
        | Call::Graph(_)
        | Call::Jobs
        | Call::JobLog
        | Call::Queues
        | Call::WaitingKeys
        | Call::Workers
        | Call::WorkerEvents => true,
        Call::RemoveOverride | Call::Configuration => true,
        // Probes are configured in many places; they keep working whatever is added to their address.
        Call::Healthz | Call::Readyz => true,
        // So do addresses of the page that others have made.
        Call::Page | Call::Asset | Call::Live => true,
        _ => false,
    }
}

/// Whether a call is about workflows, and not about the server alone.
const fn needs_engine(call: Call) -> bool {
    match call {
        Call::Version | Call::Status | Call::OpenApi | Call::Healthz | Call::Readyz => false,
        Call::Session
        | Call::SignIn
        | Call::SignOut
        | Call::Page
        | Call::Asset
        | Call::Overview => false,
        // Limits are kept elsewhere, and depend on no workflow.
        Call::Overrides
        | Call::SetOverride
        | Call::RemoveOverride
        | Call::CheckLimits
        | Call::TopKeys => false,
        Call::Configuration => false,
        // Where nobody moves the clock, it waits for no store.
        Call::AdvanceClock => false,
        _ => true,
    }
}

async fn dispatch(ask: &Ask<'_>) -> Answer {
    if !has_parameters(ask.matched.route.call) {
        Query::new(ask.query)?.end()?;
    }
    match ask.matched.route.call {
        Call::Claim => claims::claim(ask).await,
        Call::Report => reports::report(ask).await,
        Call::Extend => leases::extend(ask).await,
        Call::Create => create::create(ask).await,
        Call::CreateBatch => create::create_batch(ask).await,
        Call::List => list::list(ask).await,
        Call::Count => list::count(ask).await,
        Call::Bulk => bulk::bulk(ask).await,
        Call::ByKey => show::by_key(ask).await,
        Call::Show => show::show(ask).await,
        Call::Delete => act::delete(ask).await,
        Call::Act(action) => act::act(ask, action).await,
        Call::Restart => act::restart(ask).await,
        Call::Expire => act::expire(ask).await,
        Call::Graph(form) => graph::graph(ask, form).await,
        Call::Events => events::events(ask).await,
        Call::Jobs => jobs::list(ask).await,
        Call::Job => jobs::show(ask).await,
        Call::JobLog => jobs::log::log(ask).await,
        Call::JobAct(action) => jobs::act(ask, action).await,
        Call::Queues => queues::list(ask).await,
        Call::SetQueue(paused) => queues::set(ask, paused).await,
        Call::ShowTerms(of) => terms::show(ask, of),
        Call::SetTerms(of) => terms::set(ask, of).await,
        Call::RemoveTerms(of) => terms::remove(ask, of).await,
        Call::Workers => workers::list(ask).await,
        Call::WorkerEvents => workers::events::events(ask).await,
        Call::Drain(draining) => workers::set(ask, draining).await,
        Call::Overrides => overrides::list(ask).await,
        Call::SetOverride => overrides::set(ask).await,
        Call::RemoveOverride => overrides::remove(ask).await,
        Call::CheckLimits => check::check(ask).await,
        Call::TopKeys => Ok(top::show(ask)),
        Call::Configuration => configuration::show(ask),
        Call::WaitingKeys => waiting::list(ask).await,
        Call::AdvanceClock => clock::advance(ask).await,
        Call::Version => Ok(version(&ask.api.host)),
        Call::OpenApi => Ok(openapi::page()),
        Call::Status => readiness::status(ask).await,
        Call::Healthz => Ok((StatusCode::OK, "ok\n").into_response()),
        Call::Readyz => Ok(readiness::readyz(ask.api).await),
        Call::Session => session::show(ask),
        Call::SignIn => session::sign_in(ask),
        Call::SignOut => session::sign_out(ask),
        Call::Overview => Ok(overview::show(ask)),
        Call::Live => live::live(ask).await,
        Call::Page => Ok(files::page(ask)),
        Call::Asset => files::asset(ask),
    }
}

/// Which server this is.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Version {
    /// The version of the server. What follows its `+` is the revision that it was built of.
    version: &'static str,
    /// The version of the API, as in its paths.
    api: &'static str,
}

fn version(host: &Host) -> Response {
    json::ok(&Version {
        version: host.version,
        api: "v1",
    })
}
