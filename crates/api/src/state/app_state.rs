//! State that all requests share, and the context of one request.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use http_body_util::BodyExt as _;
use tidegate_workflow::{Engine, EngineError, Snapshot, Store, Timestamp, WorkflowId};
use tokio::sync::watch;
use tokio::time::timeout;

use super::error_log::LogThrottle;
use super::feeds::follower::Feeds;
use super::feeds::{FeedVersion, WorkflowFeed};
use super::metrics::ApiMetrics;
use super::probe_cache::ProbeCache;
use super::server_hooks::ServerHooks;
use super::store_gate::StoreGate;
use super::worker_registry::WorkerRegistry;
use crate::http::auth::Access;
use crate::http::problem::{Code, Problem};
use crate::http::quota::{
    self, ANSWER_QUOTA_BYTES, Caller, MAX_UNRESERVED_BYTES, Peer, QUOTA_TIMEOUT, Quota, Reserved,
    attach_guard,
};
use crate::http::request_id::RequestId;
use crate::http::route::MatchedRoute;

/// Poll interval for a workflow with readers, if other servers may change it.
pub(crate) const WORKFLOW_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Quotas that all callers share.
#[derive(Debug, Clone)]
pub(crate) struct Quotas {
    /// Bytes of large answers.
    pub(crate) answers: Arc<Quota>,
    pub(crate) streams: Arc<Quota>,
    /// Streams of workers have their own quota: a fleet with one token is larger than the streams
    /// of people.
    pub(crate) worker_streams: Arc<Quota>,
}

impl Quotas {
    pub(crate) fn new(access: &Access) -> Self {
        let streams = access.max_streams;
        Self {
            answers: Quota::new(
                "bytes of answers that were not read",
                ANSWER_QUOTA_BYTES,
                ANSWER_QUOTA_BYTES / 2,
            ),
            streams: Quota::new("event streams", streams, streams.div_ceil(4)),
            worker_streams: Quota::new("event streams of workers", 4 * streams, 4 * streams),
        }
    }
}

/// State that all requests of a thread share. A clone for another thread shares everything but the
/// engine.
#[derive(Debug, Clone)]
pub(crate) struct AppState {
    pub(crate) store_gate: Arc<StoreGate>,
    pub(crate) access: Access,
    pub(crate) metrics: Arc<ApiMetrics>,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) quotas: Quotas,
    pub(crate) error_log: Arc<LogThrottle>,
    pub(crate) probe_cache: Arc<ProbeCache>,
    pub(crate) worker_registry: Arc<WorkerRegistry>,
    pub(crate) hooks: ServerHooks,
    /// Engine for callers on this thread, once it is open.
    engine: OnceLock<Engine>,
    /// Number of the thread.
    thread: usize,
}

/// Context of one request.
pub(crate) struct RequestContext<'a> {
    pub(crate) api: &'a AppState,
    pub(crate) matched: MatchedRoute<'a>,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    /// Name of the token, if one was needed.
    pub(crate) token: Option<&'a str>,
    pub(crate) peer: Option<Peer>,
    pub(crate) body: &'a Bytes,
    pub(crate) id: &'a RequestId,
}

pub(crate) type HandlerResult = Result<Response, Problem>;

impl RequestContext<'_> {
    pub(crate) fn engine(&self) -> &Engine {
        self.api.engine()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.api.now()
    }

    /// Returns the caller, for quotas.
    pub(crate) fn caller(&self) -> Caller {
        match self.token {
            Some(name) => Caller::Token(name.to_owned()),
            None => Caller::Peer(self.peer.map(|peer| peer.0)),
        }
    }

    /// Reads the body. A large one is read on a blocking thread, so that claims do not wait for it.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> T {
        /// Body size that takes a millisecond to parse.
        const MAX_INLINE_BYTES: usize = 128 * 1024;
        if self.body.len() <= MAX_INLINE_BYTES {
            return read(self.body);
        }
        let body = self.body.clone();
        self.api.engine().run_blocking(move || read(&body)).await
    }

    /// Returns the workflow that the path names.
    pub(crate) fn workflow(&self) -> Result<WorkflowId, Problem> {
        let text = self.matched.name(0)?;
        // A text that is no id names no workflow.
        text.parse()
            .map_err(|error| Problem::new(Code::WorkflowNotFound, format!("{error}")))
    }

    /// Answers with a text that holds quota until its reader has it.
    ///
    /// # Errors
    /// There was no quota for it in time.
    pub(crate) async fn answer_reserved(
        &self,
        media_type: &'static str,
        text: Vec<u8>,
    ) -> HandlerResult {
        let text = quota::reserve_text(&self.api.quotas.answers, &self.caller(), text).await?;
        Ok(quota::reserved_answer(media_type, text))
    }

    /// Reserves quota for an answer until its reader has it, if its body is in memory as a whole. An
    /// answer to a POST is always sent, even beyond the quota, because the action is done.
    ///
    /// # Errors
    /// There is no quota for it now.
    pub(crate) async fn reserve_answer(&self, answer: Response) -> HandlerResult {
        let size = answer
            .body()
            .size_hint()
            .exact()
            .and_then(|size| usize::try_from(size).ok());
        let needs_quota = |size: &usize| {
            *size > MAX_UNRESERVED_BYTES && answer.extensions().get::<Reserved>().is_none()
        };
        let Some(size) = size.filter(needs_quota) else {
            return Ok(answer);
        };
        let quota = &self.api.quotas.answers;
        let caller = self.caller();
        let guard = if self.matched.route.method == Method::POST {
            quota.reserve_over_capacity(&caller, size)
        } else {
            quota.try_reserve(&caller, size)?
        };
        let (head, body) = answer.into_parts();
        let text = body
            .collect()
            .await
            .map_err(|error| Problem::new(Code::Internal, error.to_string()))?
            .to_bytes();
        Ok(Response::from_parts(
            head,
            Body::from(attach_guard(text, Arc::new(guard))),
        ))
    }
}

/// Bounds the time of a read that may need a large workflow as a whole: only a few such reads run
/// at a time.
///
/// # Errors
/// The read did not end in time, or failed.
pub(crate) async fn with_read_timeout<T>(
    read: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, Problem> {
    let busy = |_| {
        Problem::new(
            Code::Overloaded,
            "others look at large workflows, which are read two at a time: try again",
        )
    };
    Ok(timeout(QUOTA_TIMEOUT, read).await.map_err(busy)??)
}

impl AppState {
    pub(crate) fn new(access: Access, metrics: Arc<ApiMetrics>, hooks: ServerHooks) -> Self {
        let quotas = Quotas::new(&access);
        Self {
            store_gate: Arc::default(),
            access,
            metrics,
            feeds: Arc::default(),
            quotas,
            error_log: Arc::default(),
            probe_cache: Arc::default(),
            worker_registry: Arc::default(),
            hooks,
            engine: OnceLock::new(),
            thread: 0,
        }
    }

    /// Returns the state for requests on another thread.
    pub(crate) fn for_thread(&self, thread: usize) -> Self {
        Self {
            thread,
            engine: OnceLock::new(),
            ..self.clone()
        }
    }

    /// Returns the engine. Calls that need it begin when it is open.
    pub(crate) fn engine(&self) -> &Engine {
        let opened = || {
            self.store_gate
                .engine()
                .expect("calls that need the engine wait until the store is open")
        };
        self.engine.get_or_init(|| opened().for_thread(self.thread))
    }

    /// Returns a workflow as the store has it now.
    ///
    /// # Errors
    /// It does not exist, cannot be read, or reads of other large workflows took all the time.
    pub(crate) async fn show(&self, id: WorkflowId) -> Result<Snapshot, Problem> {
        with_read_timeout(self.engine().show(id)).await
    }

    /// Follows a workflow until the receiver is dropped.
    pub(crate) fn follow(
        &self,
        id: WorkflowId,
    ) -> (Arc<WorkflowFeed>, watch::Receiver<FeedVersion>) {
        // Other servers may change workflows in Redis.
        let poll_interval =
            matches!(self.engine().store(), Store::Redis(_)).then_some(WORKFLOW_POLL_INTERVAL);
        self.feeds
            .follow(self.engine(), id, poll_interval, &self.hooks)
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.hooks.clock)()
    }
}
