//! The workflow engine and its API. They have their own threads, so that rate limits and workflows
//! do not delay each other.
//!
//! **Invariant:** limits never depend on workflows. A store that cannot be opened is only a
//! warning. When a thread panics, all threads of workflows are restarted.

mod backoff;
pub(crate) mod clock;
mod driver;
mod durability_check;
mod gaps;
mod heartbeat;
mod limit_watcher;
pub(crate) mod port;
mod queue_sampler;
pub(crate) mod store;
mod store_probe;
mod threads;
pub(crate) mod units;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_api::{Access, Activity, Api, History, STEP, ServerHooks};
use tidegate_workflow::{Engine, ServerDescription, Store, Timestamp};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{error, info, warn};

use crate::error::ServeError;
use crate::net::bounds::{Bounds, Budget, Most};
use crate::net::runtime::ThreadRuntime;
use crate::net::tls::PortTlsAcceptor;
use crate::net::{clock as edge_clock, http};
use crate::settings::Workflows as Settings;
use crate::supervise::{Supervisor, failpoint};
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::{self, Traces};
use clock::StoreClock;
use store::{OpenContext, Opener};
use threads::Threads;
use units::Limits;

/// Name of the first thread.
const PART: &str = "workflows";
/// Timeout of the start for the first attempt to open the store, even if its thread does not get to
/// run.
const FIRST_LOOK: Duration = Duration::from_secs(4);

/// Listener of the API with its TLS acceptor and its bounds, once the ports are open.
type Port = watch::Sender<Option<(std::net::TcpListener, Option<PortTlsAcceptor>, Bounds)>>;

/// Budget in bytes for unfinished bodies: sixteen of the default maximum size. It is never below
/// four bodies.
const UNFINISHED: usize = 128 * 1024 * 1024;

/// The running threads of workflows.
#[derive(Debug)]
pub(crate) struct Workflows {
    port: Arc<Port>,
    /// Budget in bytes for unfinished bodies.
    unfinished: usize,
    pub(crate) activity: Arc<Activity>,
    /// Location of the workflows, without credentials.
    pub(crate) store: String,
}

/// State that the threads share with the rest of the server.
#[derive(Debug)]
pub(crate) struct ServerContext {
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) supervisor: Supervisor,
    pub(crate) limits: Limits,
    /// None if traces are off.
    pub(crate) traces: Option<Traces>,
}

/// State of the first thread, at its start and at restarts after a panic.
struct Thread {
    settings: Settings,
    context: ServerContext,
    activity: Arc<Activity>,
    port: Arc<Port>,
    looked: Option<oneshot::Sender<()>>,
    history: Arc<History>,
}

/// Reason why the engine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
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
        let mut store = store::shown(settings);
        let activity = Arc::new(Activity::default());
        let port = Arc::new(Port::new(None));
        let (looked, found) = oneshot::channel();
        let history = Arc::new(History::default());
        let supervisor = context.supervisor.clone();
        supervisor.task(
            "the last hour",
            remember(
                history.clone(),
                activity.clone(),
                context.metrics.clone(),
                supervisor.clone(),
            ),
        );
        let mut thread = Thread {
            settings: settings.clone(),
            context,
            activity: activity.clone(),
            port: port.clone(),
            looked: Some(looked),
            history,
        };
        supervisor.restarting_thread(PART, move || thread.main())?;
        if !matches!(timeout(FIRST_LOOK, found).await, Ok(Ok(()))) {
            store.push_str(" (not available: see the log)");
        }
        let unfinished = UNFINISHED.max(settings.max_body.saturating_mul(4));
        Ok(Self {
            port,
            unfinished,
            activity,
            store,
        })
    }

    /// Serves the API on `listener`, with TLS if there is a `acceptor`, for at most `connections`.
    /// Returns the bounds of the port.
    pub(crate) fn open(
        &self,
        listener: std::net::TcpListener,
        gate: Option<PortTlsAcceptor>,
        connections: Most,
    ) -> Bounds {
        let bounds = Bounds::new("API", connections, Budget::new(self.unfinished));
        self.port
            .send_replace(Some((listener, gate, bounds.clone())));
        bounds
    }
}

impl Thread {
    fn main(&mut self) {
        loop {
            match ThreadRuntime::new() {
                Ok(runtime) => match runtime.block_on(failpoint::with(PART.into(), self.run())) {
                    Next::OpenAgain => {}
                    Next::End => return,
                },
                Err(error) => return error!(%error, "the system refuses a runtime for workflows"),
            }
        }
    }

    /// Serves the API and drives the engine until the server stops, or the store is replaced.
    async fn run(&mut self) -> Next {
        // A thread without a partition would only process JSON.
        let count = self.settings.threads.min(self.settings.partitions.into());
        let mut threads = match Threads::start(count) {
            Ok(threads) => threads,
            Err(error) => {
                error!(%error, "the system refuses threads for workflows");
                return Next::End;
            }
        };
        let runtimes = threads.runtimes().to_vec();
        let clock = StoreClock::default();
        let api = Api::new(
            self.access(),
            self.activity.clone(),
            self.host(clock.clone()),
        );
        let looked = self.looked.take();
        let context = OpenContext {
            settings: &self.settings,
            counters: self.context.limits.counters.clone(),
            traces: self.context.traces.clone(),
            api: &api,
            activity: &self.activity,
        };
        let opener = Opener::new(context, looked, clock.clone());
        let mut engine = None;
        let work = async {
            let opened = opener.open(&runtimes).await;
            engine = Some(opened.clone());
            Box::pin(self.drive(opened, clock.clone(), &api)).await
        };
        let next = tokio::select! {
            () = self.serve(&api, &runtimes) => Next::End,
            () = threads.broken() => Next::End,
            next = work => next,
        };
        // The metrics must not keep connections open.
        self.context.metrics.watch_redis_of_workflows(Vec::new());
        // A step that came after the last heartbeat.
        clock.log_step();
        if let Some(engine) = engine {
            heartbeat::end(&engine).await;
            close(engine).await;
        }
        match next {
            Next::OpenAgain => {
                warn!("workflows are opened again: redis had lost the store, and it was made anew")
            }
            Next::End => info!("workflows have stopped"),
        }
        next
    }

    /// Drives an engine whose store was just opened, until the server stops or the store is
    /// replaced.
    async fn drive(&self, engine: Engine, clock: StoreClock, api: &Api) -> Next {
        let ServerContext {
            metrics,
            supervisor,
            limits,
            ..
        } = &self.context;
        self.activity.put_tally(engine.tally());
        metrics.watch_redis_of_workflows(engine.redis_clients());
        // This comes before the first claim. Leases that could not be extended meanwhile continue,
        // and keep their permits.
        let now = clock.now();
        engine.begin_serving(now);
        let _late = timeout(store::PATIENCE, engine.catch_up(now)).await;
        api.open(engine.clone());
        let limiter = limits.shown.limiter.clone();
        let activity = self.activity.clone();
        tokio::select! {
            () = driver::run(engine.clone(), clock, limiter, self.about(), activity) => Next::End,
            () = durability_check::follow(engine.store(), self.settings.replicas, &self.activity) => Next::End,
            () = engine.store().replaced() => Next::OpenAgain,
            () = supervisor.stop.cancelled() => Next::End,
        }
    }

    /// Serves the API until the server stops.
    async fn serve(&self, api: &Api, runtimes: &[Handle]) {
        if let Some((port, gate, bounds)) = self.listener().await {
            let each = runtimes.iter().enumerate();
            let threads = each
                .map(|(at, runtime)| http::Thread::new(runtime.clone(), api.on(at).router()))
                .collect();
            http::serve_on(threads, port, gate, bounds, self.context.supervisor.clone()).await;
            // The server drains, so another process may take the port now.
            self.port.send_replace(None);
        }
        self.context.supervisor.stop.cancelled().await;
    }

    /// Waits for the listener of the API, with its TLS acceptor and its bounds. None if the server
    /// stops, or the system refuses the listener.
    async fn listener(&self) -> Option<(TcpListener, Option<PortTlsAcceptor>, Bounds)> {
        let mut port = self.port.subscribe();
        let opened = tokio::select! {
            opened = port.wait_for(Option::is_some) => opened.ok()?,
            () = self.context.supervisor.drain.cancelled() => return None,
        };
        // The listener is a copy: if this thread panics, the port stays open until the restart.
        let (listener, gate, bounds) = opened.as_ref()?;
        let copy = listener.try_clone().and_then(TcpListener::from_std);
        let copy = copy
            .inspect_err(|error| warn!(%error, "cannot register the listener of the API"))
            .ok()?;
        Some((copy, gate.clone(), bounds.clone()))
    }

    /// Description of this server for the other servers of the store.
    fn about(&self) -> ServerDescription {
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
            max_body: settings.max_body,
            max_streams: settings.max_streams,
        }
    }

    fn host(&self, clock: StoreClock) -> ServerHooks {
        let ServerContext {
            health,
            metrics,
            supervisor,
            limits,
            traces,
        } = &self.context;
        let advance: Arc<dyn Fn(Duration) -> bool + Send + Sync> = {
            let clock = clock.clone();
            Arc::new(move |by| clock.advance(by))
        };
        let health = health.clone();
        let counting = metrics.clone();
        let totals = metrics.clone();
        let uses = metrics.clone();
        let loads = limits.latest.clone();
        ServerHooks {
            version: crate::VERSION,
            clock: Arc::new(move || clock.now()),
            test_clock: self.settings.test_clock.then_some(advance),
            serving: Arc::new(move || health.serving()),
            counting: Arc::new(move || counting.counting()),
            totals: Arc::new(move || totals.totals()),
            history: self.history.clone(),
            limits: limits.shown.clone(),
            loads: Arc::new(move || loads.loads()),
            uses: Arc::new(move |slots: &[u32]| uses.uses(slots)),
            traces: tidegate_api::Traces {
                caller: traces::caller,
                exporter: traces.as_ref().map(Traces::of_api),
            },
            drain: supervisor.drain.clone(),
            tasks: supervisor.tasks.clone(),
        }
    }
}

/// Records metrics of the last hour, until the server stops.
async fn remember(
    history: Arc<History>,
    activity: Arc<Activity>,
    metrics: Arc<Metrics>,
    supervisor: Supervisor,
) {
    let mut turns = interval(STEP);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = turns.tick() => history.note(&activity, metrics.totals(), Timestamp::from_micros(edge_clock::now().0)),
            () = supervisor.drain.cancelled() => return,
        }
    }
}

async fn close(engine: Engine) {
    engine.close().await;
    if let Store::Sqlite(store) = engine.store() {
        store.close().await;
    }
}
