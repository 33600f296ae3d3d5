//! The HTTP API. A request goes `route` (who may do what) -> one file for each noun -> the engine, and comes back as JSON.
//!
//! **Invariant:** no rule lives here: outside words become inside words, and back.

mod auth;
mod body;
mod bulk;
mod claims;
mod definition;
mod events;
mod graph;
mod jobs;
mod json;
mod openapi;
mod problem;
mod query;
mod queues;
mod reports;
mod route;
pub(crate) mod time;
mod workflows;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use tidegate_workflow::{Engine, Store, WorkflowId};
use tokio::sync::watch;

use crate::clock;
use crate::health::Health;
use crate::life::Life;
use crate::settings::{self, Tokens};
use crate::workflows::{Counts, Event};
use json::Json;
use problem::{Code, Problem};
use route::{Call, Matched};

/// How often a workflow that somebody watches is looked at when other servers may change it.
const LOOK: Duration = Duration::from_millis(250);

/// What all requests share.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Engine,
    tokens: Option<Tokens>,
    /// Whether names of hosts are checked, because any page in a browser on this machine could ask.
    local_only: bool,
    max_body: usize,
    counts: Arc<Counts>,
    views: events::Views,
    store_answers: watch::Sender<bool>,
    health: Health,
    life: Life,
}

/// One request.
struct Ask<'a> {
    api: &'a Shared,
    matched: Matched<'a>,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
    body: &'a [u8],
}

type Answer = Result<Response, Problem>;

impl Api {
    pub(crate) fn new(
        engine: Engine,
        settings: &settings::Workflows,
        counts: Arc<Counts>,
        (health, life): (Health, Life),
    ) -> Self {
        let shared = Shared {
            engine,
            tokens: settings.tokens.clone(),
            local_only: settings.tokens.is_none() && !settings.anonymous,
            max_body: settings.max_body,
            counts,
            views: events::Views::default(),
            store_answers: watch::Sender::new(true),
            health,
            life,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Hears whether the store answers.
    pub(crate) fn store_answers(&self) -> watch::Sender<bool> {
        self.shared.store_answers.clone()
    }
}

/// All of the API.
pub(crate) fn router(api: Api) -> Router {
    Router::new().fallback(serve).with_state(api)
}

async fn serve(State(api): State<Api>, request: Request<Body>) -> Response {
    let api = &*api.shared;
    api.counts.add(Event::Request, 1);
    match answer(api, request).await {
        Ok(response) => response,
        Err(problem) => {
            if matches!(problem.code, Code::StoreUnavailable | Code::Internal) {
                api.counts.add(Event::StoreError, 1);
            }
            problem.into_response()
        }
    }
}

async fn answer(api: &Shared, request: Request<Body>) -> Answer {
    let (head, body) = request.into_parts();
    let matched = route::find(&head.method, head.uri.path())?;
    auth::check(api, &head.headers, matched.route)?;
    let body = match head.method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => body::receive(api.max_body, &head.headers, body).await?,
    };
    let ask = Ask { api, matched, query: head.uri.query(), headers: &head.headers, body: &body };
    ask.answer().await
}

impl Ask<'_> {
    async fn answer(&self) -> Answer {
        match self.matched.route.call {
            Call::Claim => claims::claim(self).await,
            Call::Report => reports::report(self).await,
            Call::Extend => reports::extend(self).await,
            Call::Create => workflows::create(self).await,
            Call::CreateBatch => workflows::create_batch(self).await,
            Call::List => workflows::list(self).await,
            Call::Count => workflows::count(self).await,
            Call::Bulk => bulk::bulk(self).await,
            Call::ByKey => workflows::by_key(self).await,
            Call::Show => workflows::show(self).await,
            Call::Delete => workflows::delete(self).await,
            Call::Act(action) => workflows::act(self, action).await,
            Call::Restart => workflows::restart(self).await,
            Call::Expire => workflows::expire(self).await,
            Call::Graph(form) => graph::graph(self, form).await,
            Call::Events => events::events(self).await,
            Call::Jobs => jobs::list(self).await,
            Call::Job => jobs::show(self).await,
            Call::JobAct(action) => jobs::act(self, action).await,
            Call::Queues => queues::list(self).await,
            Call::SetQueue(paused) => queues::set(self, paused).await,
            Call::Version => Ok(version()),
            Call::OpenApi => Ok(openapi::page()),
            Call::Healthz => Ok((StatusCode::OK, "ok\n").into_response()),
            Call::Readyz => Ok(self.readiness()),
        }
    }

    fn readiness(&self) -> Response {
        let (status, text) = match (self.api.health.serving(), *self.api.store_answers.borrow()) {
            (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "not serving\n"),
            (_, false) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n"),
            _ => (StatusCode::OK, "ready\n"),
        };
        (status, text).into_response()
    }

    /// The workflow that the path names.
    fn workflow(&self) -> Result<WorkflowId, Problem> {
        let text = self.matched.name(0)?;
        // Something that cannot be an id is not one of any workflow.
        text.parse().map_err(|error| Problem::new(Code::WorkflowNotFound, format!("{error}")))
    }
}

impl Shared {
    /// Whether others may change what is in the store.
    fn has_company(&self) -> bool {
        matches!(self.engine.store(), Store::Redis(_))
    }

    fn now(&self) -> tidegate_workflow::Timestamp {
        clock::moment()
    }
}

fn version() -> Response {
    let fill = |json: &mut Json| {
        json.key("version").plain(env!("CARGO_PKG_VERSION"));
        json.key("api").plain("v1");
    };
    Json::of(fill).ok()
}
