//! The workflow engine and its API. They have their own threads, so that rate limits and workflows
//! do not delay each other.
//!
//! **Invariant:** limits never depend on workflows. A store that cannot be opened is only a
//! warning. When a thread panics, all threads of workflows are restarted.

mod backoff;
pub(crate) mod clock;
mod driver;
mod heartbeat;
pub(crate) mod port;
mod queue_sampler;
pub(crate) mod store;
mod store_probe;
mod threads;
pub(crate) mod units;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_api::{
    Access, Api, ApiMetrics, History, LIMIT_RATES_STEP, STEP, Scope, ServerHooks, StoreLocations,
};
use tidegate_ratelimit::Limiter;
use tidegate_workflow::{Engine, ServerDescription, Timestamp};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{error, info, warn};

use crate::base::clock as edge_clock;
use crate::net::bounds::{ConnectionLimit, MemoryBudget, PortBounds};
use crate::net::http;
use crate::net::tls::PortTlsAcceptor;
use crate::settings::WorkflowSettings as Settings;
use crate::supervise::error::ServeError;
use crate::supervise::health::Health;
use crate::supervise::runtime::ThreadRuntime;
use crate::supervise::{Supervisor, failpoint};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::{self, Traces};
use clock::StoreClock;
use store::{OpenContext, Opener};
use threads::Threads;
use units::WorkflowLimits;

/// Name of the first thread.
const THREAD_NAME: &str = "workflows";
/// Timeout of the start for the first attempt to open the store, even if its thread does not get to
/// run.
const FIRST_OPEN_TIMEOUT: Duration = Duration::from_secs(4);

/// Listener of the API with its TLS acceptor and its bounds, once the ports are open.
type ApiPort = watch::Sender<Option<(std::net::TcpListener, Option<PortTlsAcceptor>, PortBounds)>>;

/// Budget in bytes for unfinished bodies: sixteen of the default maximum size. It is never below
/// four bodies.
const MIN_UNFINISHED_BYTES: usize = 128 * 1024 * 1024;

/// The running threads of workflows.
#[derive(Debug)]
pub(crate) struct Workflows {
    port: Arc<ApiPort>,
    /// Budget in bytes for unfinished bodies.
    unfinished_bytes: usize,
    pub(crate) activity: Arc<ApiMetrics>,
    /// Location of the workflows, without credentials.
    pub(crate) store: String,
}

/// State that the threads share with the rest of the server.
pub(crate) struct ServerContext {
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) supervisor: Supervisor,
    pub(crate) limits: WorkflowLimits,
    /// Location of the counters, without credentials.
    pub(crate) counter_store: String,
    /// None if traces are off.
    pub(crate) traces: Option<Traces>,
}

/// State of the first thread, at its start and at restarts after a panic.
struct WorkflowThread {
    settings: Settings,
    context: ServerContext,
    activity: Arc<ApiMetrics>,
    port: Arc<ApiPort>,
    first_attempt: Option<oneshot::Sender<()>>,
    history: Arc<History>,
}

/// Reason why the engine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineEnd {
    /// Redis lost the store, and another was created.
    OpenAgain,
    End,
}

impl Workflows {
    /// Starts the threads, and waits for the first attempt to open the store. The API is not served
    /// yet.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub(crate) async fn start(
        settings: &Settings,
        context: ServerContext,
    ) -> Result<Self, ServeError> {
        let mut store = store::location_text(settings);
        let activity = Arc::new(ApiMetrics::default());
        let port = Arc::new(ApiPort::new(None));
        let (first_attempt, found) = oneshot::channel();
        let history = Arc::new(History::default());
        let supervisor = context.supervisor.clone();
        let metrics = context.metrics.clone();
        let limiter = context.limits.shown.limiter.clone();
        let record = record_limits(history.clone(), limiter, metrics.clone());
        supervisor.task_until_drain("the rates of limits", record);
        let record = record_history(history.clone(), activity.clone(), metrics);
        supervisor.task_until_drain("the last day", record);
        let mut thread = WorkflowThread {
            settings: settings.clone(),
            context,
            activity: activity.clone(),
            port: port.clone(),
            first_attempt: Some(first_attempt),
            history,
        };
        supervisor.restarting_thread(THREAD_NAME, move || thread.main())?;
        if !matches!(timeout(FIRST_OPEN_TIMEOUT, found).await, Ok(Ok(()))) {
            store.push_str(" (not available: see the log)");
        }
        let unfinished_bytes = MIN_UNFINISHED_BYTES.max(settings.max_body.saturating_mul(4));
        Ok(Self {
            port,
            unfinished_bytes,
            activity,
            store,
        })
    }

    /// Serves the API on `listener`, with TLS if there is a `acceptor`, for at most `connections`.
    /// Returns the bounds of the port.
    pub(crate) fn open(
        &self,
        listener: std::net::TcpListener,
        acceptor: Option<PortTlsAcceptor>,
        connections: ConnectionLimit,
    ) -> PortBounds {
        let bounds = PortBounds::new("API", connections, MemoryBudget::new(self.unfinished_bytes));
        self.port
            .send_replace(Some((listener, acceptor, bounds.clone())));
        bounds
    }
}

impl WorkflowThread {
    fn main(&mut self) {
        loop {
            match ThreadRuntime::new() {
                Ok(runtime) => {
                    match runtime.block_on(failpoint::with(THREAD_NAME.into(), self.run())) {
                        EngineEnd::OpenAgain => {}
                        EngineEnd::End => return,
                    }
                }
                Err(error) => return error!(%error, "the system refuses a runtime for workflows"),
            }
        }
    }

    /// Serves the API and drives the engine until the server stops, or the store is replaced.
    async fn run(&mut self) -> EngineEnd {
        // A thread without a partition would only process JSON.
        let count = self.settings.threads.min(self.settings.partitions.into());
        let mut threads = match Threads::start(count) {
            Ok(threads) => threads,
            Err(error) => {
                error!(%error, "the system refuses threads for workflows");
                return EngineEnd::End;
            }
        };
        let runtimes = threads.runtimes().to_vec();
        let clock = StoreClock::default();
        let api = Api::new(
            self.access(),
            self.activity.clone(),
            self.server_hooks(clock.clone()),
        );
        let mut first_attempt = self.first_attempt.take();
        if self.settings.scope == Scope::LimitsReadOnly
            && let Some(first_attempt) = first_attempt.take()
        {
            // The receiver may have been dropped after its timeout.
            let _ = first_attempt.send(());
        }
        let context = OpenContext {
            settings: &self.settings,
            counters: self.context.limits.counters.clone(),
            traces: self.context.traces.clone(),
            api: &api,
            activity: &self.activity,
        };
        let opener = Opener::new(context, first_attempt, clock.clone());
        let mut engine = None;
        let work = async {
            if self.settings.scope == Scope::LimitsReadOnly {
                // Without a store, nothing is to be opened or driven.
                return std::future::pending().await;
            }
            let opened = opener.open(&runtimes).await;
            engine = Some(opened.clone());
            Box::pin(self.drive(opened, clock.clone(), &api)).await
        };
        let next = tokio::select! {
            () = self.serve(&api, &runtimes) => EngineEnd::End,
            () = threads.wait_for_failure() => EngineEnd::End,
            next = work => next,
        };
        // A step that came after the last heartbeat.
        clock.log_step();
        self.close(engine, next).await;
        next
    }

    /// Closes what was opened, and logs why.
    async fn close(&self, engine: Option<Engine>, end: EngineEnd) {
        // The metrics must not keep connections open.
        self.context.metrics.watch_redis_of_workflows(Vec::new());
        if let Some(engine) = engine {
            heartbeat::leave(&engine).await;
            store::close(&engine).await;
        }
        match end {
            EngineEnd::OpenAgain => {
                warn!("workflows are opened again: redis had lost the store, and it was made anew")
            }
            EngineEnd::End => info!("workflows have stopped"),
        }
    }

    /// Drives an engine whose store was just opened, until the server stops or the store is
    /// replaced.
    async fn drive(&self, engine: Engine, clock: StoreClock, api: &Api) -> EngineEnd {
        let ServerContext {
            metrics,
            supervisor,
            limits,
            ..
        } = &self.context;
        self.activity.put_attempt_counts(engine.attempt_counts());
        metrics.watch_redis_of_workflows(engine.redis_clients());
        // This comes before the first claim. Leases that could not be extended meanwhile continue,
        // and keep their permits.
        let now = clock.now();
        engine.begin_serving(now);
        let _late = timeout(store::OPEN_TIMEOUT, engine.catch_up(now)).await;
        api.open(engine.clone());
        let limiter = limits.shown.limiter.clone();
        let activity = self.activity.clone();
        tokio::select! {
            () = driver::run(engine.clone(), clock, limiter, self.description(), activity) => EngineEnd::End,
            () = store_probe::follow_durability(engine.store(), self.settings.replicas, &self.activity) => EngineEnd::End,
            () = engine.store().replaced() => EngineEnd::OpenAgain,
            () = supervisor.stop.cancelled() => EngineEnd::End,
        }
    }

    /// Serves the API until the server stops.
    async fn serve(&self, api: &Api, runtimes: &[Handle]) {
        if let Some((port, acceptor, bounds)) = self.listener().await {
            let each = runtimes.iter().enumerate();
            let threads = each
                .map(|(at, runtime)| {
                    http::HttpThread::new(runtime.clone(), api.for_thread(at).router())
                })
                .collect();
            http::serve_on(
                threads,
                port,
                acceptor,
                bounds,
                self.context.supervisor.clone(),
            )
            .await;
            // The server drains, so another process may take the port now.
            self.port.send_replace(None);
        }
        self.context.supervisor.stop.cancelled().await;
    }

    /// Waits for the listener of the API, with its TLS acceptor and its bounds. None if the server
    /// stops, or the system refuses the listener.
    async fn listener(&self) -> Option<(TcpListener, Option<PortTlsAcceptor>, PortBounds)> {
        let mut port = self.port.subscribe();
        let opened = tokio::select! {
            opened = port.wait_for(Option::is_some) => opened.ok()?,
            () = self.context.supervisor.drain.cancelled() => return None,
        };
        // The listener is a copy: if this thread panics, the port stays open until the restart.
        let (listener, acceptor, bounds) = opened.as_ref()?;
        let copy = listener.try_clone().and_then(TcpListener::from_std);
        let copy = copy
            .inspect_err(|error| warn!(%error, "cannot register the listener of the API"))
            .ok()?;
        Some((copy, acceptor.clone(), bounds.clone()))
    }

    /// Description of this server for the other servers of the store.
    fn description(&self) -> ServerDescription {
        let address =
            SocketAddr::new(self.settings.address.host, self.settings.address.port).to_string();
        ServerDescription {
            version: crate::VERSION.to_owned(),
            address,
        }
    }

    fn access(&self) -> Access {
        let settings = &self.settings;
        Access {
            tokens: settings.tokens.as_ref().map(|file| file.tokens.clone()),
            anonymous: settings.anonymous,
            scope: settings.scope,
            max_body: settings.max_body,
            max_streams: settings.max_streams,
        }
    }

    fn trace_hooks(&self) -> tidegate_api::Traces {
        tidegate_api::Traces {
            caller: traces::caller,
            exporter: self.context.traces.as_ref().map(Traces::api_exporter),
        }
    }

    fn server_hooks(&self, clock: StoreClock) -> ServerHooks {
        let ServerContext {
            health,
            metrics,
            supervisor,
            limits,
            counter_store,
            ..
        } = &self.context;
        let test_clock = clock.clone();
        let draining = health.clone();
        let health = health.clone();
        let counting = metrics.clone();
        let totals = metrics.clone();
        let uses = metrics.clone();
        let loads = limits.load_status.clone();
        ServerHooks {
            version: crate::VERSION,
            clock: Arc::new(move || clock.now()),
            test_clock: self
                .settings
                .test_clock
                .then_some(Arc::new(move |by| test_clock.advance(by))),
            serving: Arc::new(move || health.serving()),
            drains_until: Arc::new(move || draining.drains_until()),
            stores: Arc::new(StoreLocations {
                counters: counter_store.clone(),
                workflows: store::location_text(&self.settings),
            }),
            counter_store_health: Arc::new(move || counting.store_availability()),
            totals: Arc::new(move || totals.totals()),
            history: self.history.clone(),
            limits: limits.shown.clone(),
            loads: Arc::new(move || loads.loads()),
            limit_uses: Arc::new(move |slots: &[u32]| uses.uses(slots)),
            traces: self.trace_hooks(),
            drain: supervisor.drain.clone(),
            tasks: supervisor.tasks.clone(),
        }
    }
}

/// Time of a reading of all counters, above which they are read every ten seconds only. With
/// hundreds of thousands of limits, a reading each second would keep a core busy for some percent.
const MAX_READ_TIME: Duration = Duration::from_millis(5);

/// Records metrics of the last day, until the future is dropped.
async fn record_history(history: Arc<History>, activity: Arc<ApiMetrics>, metrics: Arc<Metrics>) {
    let mut ticks = interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut skipped = 0;
    loop {
        ticks.tick().await;
        if skipped > 0 {
            skipped -= 1;
            continue;
        }
        let now = Timestamp::from_micros(edge_clock::now().0);
        let began = Instant::now();
        let totals = metrics.totals();
        if began.elapsed() > MAX_READ_TIME {
            skipped = 9;
        }
        history.record_point(&activity, totals, now);
    }
}

/// Records the counts of limits for their rates, and refusals, until the future is dropped.
async fn record_limits(history: Arc<History>, limiter: Limiter, metrics: Arc<Metrics>) {
    loop {
        history.record_refusals(&limiter, edge_clock::now());
        // It is held until the counts were read, so that no other limits get its slots.
        let wait = if let Some(configuration) = limiter.configuration() {
            history.record_limits(&configuration, |slots| metrics.uses(slots));
            LIMIT_RATES_STEP
        } else {
            STEP
        };
        sleep(wait).await;
    }
}
