//! Context of one request, and the state that all requests share.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use tidegate_workflow::{Engine, EngineError, Snapshot, Store, Timestamp, WorkflowId};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::problem::{Code, Problem};
use super::quota::{ANSWER_QUOTA_BYTES, Caller, QUOTA_TIMEOUT, Quota};
use super::request_id::RequestId;
use super::tokens::Tokens;
use crate::events::{FeedVersion, Feeds, WorkflowFeed};
use crate::limits::RateLimits;
use crate::routes::route::MatchedRoute;
use crate::state::config_status::{LimitUse, Loads};
use crate::state::error_log::LogThrottle;
use crate::state::metrics::ApiMetrics;
use crate::state::store_gate::StoreGate;
use crate::state::traces::Traces;
use crate::status::overview::{GatewayTotals, History};
use crate::status::readiness::{Availability, ProbeCache};
use crate::workers::WorkerRegistry;

/// Poll interval for a workflow with readers, if other servers may change it.
pub(crate) const WORKFLOW_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Rules for access to the API, and limits for one request.
#[derive(Debug, Clone)]
pub struct Access {
    /// Tokens that may use the API. `None` if every client may.
    pub tokens: Option<Tokens>,
    /// Whether to serve clients of any address without tokens.
    pub anonymous: bool,
    /// Largest body, in bytes.
    pub max_body: usize,
    /// Most event streams at a time. One caller has at most a quarter of them.
    pub max_streams: usize,
}

/// Address of the client of a connection. The server that embeds the API sets it as an extension of
/// each request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

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

/// Returns the counts of the limits with some slots, in their order.
type LimitUses = dyn Fn(&[u32]) -> Vec<LimitUse> + Send + Sync;

/// State and functions that the embedding server provides to the API.
#[derive(Clone)]
pub struct ServerHooks {
    /// Version of the server.
    pub version: &'static str,
    /// Clock of the store of workflows.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Moves that clock ahead. Returns whether it could. `None` if there is no test clock.
    pub test_clock: Option<Arc<dyn Fn(Duration) -> bool + Send + Sync>>,
    /// Whether the server as a whole is healthy.
    pub serving: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether the store of counters works, by the latest rate limit calls.
    pub counter_store_health: Arc<dyn Fn() -> Availability + Send + Sync>,
    /// Counts of the server's gateway.
    pub totals: Arc<dyn Fn() -> GatewayTotals + Send + Sync>,
    /// History of the last hour.
    pub history: Arc<History>,
    /// Rate limits of the server.
    pub limits: RateLimits,
    /// Loads of the configuration of these limits, with their results.
    pub loads: Arc<dyn Fn() -> Arc<Loads> + Send + Sync>,
    /// Counts of the limits with these slots, of a configuration that is held.
    pub limit_uses: Arc<LimitUses>,
    /// Hooks for traces.
    pub traces: Traces,
    /// Cancelled when the server drains: streams and waits end.
    pub drain: CancellationToken,
    /// Tracker of the tasks that outlive their request.
    pub tasks: TaskTracker,
}

impl fmt::Debug for ServerHooks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Host").finish_non_exhaustive()
    }
}

#[cfg(test)]
impl ServerHooks {
    /// Hooks of a server for tests.
    pub(crate) fn for_test(now: Timestamp) -> Self {
        Self {
            version: "test",
            clock: Arc::new(move || now),
            test_clock: None,
            serving: Arc::new(|| true),
            counter_store_health: Arc::new(|| Availability::Up),
            totals: Arc::new(GatewayTotals::default),
            history: Arc::default(),
            limits: RateLimits::in_memory(),
            loads: Arc::new(Arc::default),
            limit_uses: Arc::new(|slots| vec![LimitUse::default(); slots.len()]),
            traces: Traces {
                caller: |_| None,
                exporter: None,
            },
            drain: CancellationToken::new(),
            tasks: TaskTracker::new(),
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
