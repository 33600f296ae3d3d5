//! From settings to a server that answers, and to its end.
//!
//! Read from [`run`] downward, in the order in which a server starts: sockets, store, workflows, configuration, cores; then
//! [`Server::until`] waits for the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tidegate_api::RateLimits;
use tidegate_ratelimit::{Limiter, MemoryStore, OverrideStore, RedisStore, Store};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::certificates::{StoreTls, follow};
use crate::configure::xds::Subscription;
use crate::configure::{Latest, Loader, Origin, Target};
use crate::drain::{Delay, Stop};
use crate::edge::bounds::{self, Bounds, Budget, Files, Most, Shares};
use crate::edge::clock;
use crate::edge::cores::{self, Work};
use crate::edge::http;
use crate::edge::listen::{Addresses, Listeners, Sockets};
use crate::edge::runtime::ThreadRuntime;
use crate::edge::tls::{Gate, Gates};
use crate::error::ServeError;
use crate::operate::banner::{Encryption, Loaded, Started, example};
use crate::operate::debug;
use crate::operate::give_back::give_back;
use crate::operate::health::{Health, HealthService, Part};
use crate::operate::metrics::Metrics;
use crate::operate::notify::Notify;
use crate::operate::statsd;
use crate::operate::traces::Traces;
use crate::rls::call::{Calls, patience};
use crate::rls::grpc::Services;
use crate::rls::memcache::Memcached;
use crate::rls::overrides::LimitOverrides;
use crate::rls::redis::Clients;
use crate::rls::{json, memory, redis};
use crate::settings::{FirstLoad, HealthCheck, Settings, TokensFile};
use crate::supervise::{Ended, How, Supervisor, tripwire};
use crate::workflows::Workflows;
use crate::workflows::port::Late;
use crate::workflows::units::{Counters, JobUnits, Limits};

/// The name of the control thread.
const CONTROL: &str = "control";
/// How long threads may take to end once they were told to stop. It covers a last write to a slow disk; a thread that the system keeps
/// waiting (the look-up of a name, a file on a network) would otherwise keep the process.
const END: Duration = Duration::from_secs(5);
/// Bytes that the unfinished requests and untaken answers of a port may hold beyond what each connection has: sixteen of the
/// largest messages. Real ones arrive in one piece, and need none of it.
const UNFINISHED: usize = 64 * 1024 * 1024;

/// Serves until `asked` completes, for the drain delay after that, and until the calls in flight have ended or the drain timeout is over.
/// When `asked` completes once more, the delay ends. SIGHUP loads the configuration again.
///
/// Ports are bound at once. They are opened when Redis answers and the configuration is loaded. Then `started` is called, on the
/// caller's thread, which is the control thread: it accepts connections and answers health, metrics and signals, and decides
/// nothing. Must be called outside any runtime.
///
/// # Errors
/// The server cannot start, or a part of it ended although nobody asked it to.
pub fn run(
    settings: Settings,
    asked: impl AsyncFnMut() -> Stop,
    started: impl FnOnce(&Started),
) -> Result<(), ServeError> {
    let origin = Origin::new(&settings)?;
    let files = bounds::raise();
    let sockets = Sockets::bind(&settings)?;
    let runtime = ThreadRuntime::new()?;
    let server = Server::new(settings, files, Latest::new(&origin));
    let supervisor = server.supervisor.clone();
    let control = tripwire::with(
        CONTROL.into(),
        server.control(&origin, sockets, asked, started),
    );
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(control))).unwrap_or_else(|_| {
        supervisor.fail(Ended {
            part: CONTROL.into(),
            how: How::Panicked,
        });
        Ok(())
    });
    supervisor.drain.cancel();
    supervisor.stop.cancel();
    drop(runtime);
    ThreadRuntime::new()?.block_on(supervisor.join(END));
    info!("stopped");
    match supervisor.failed() {
        Some(part) => Err(ServeError::Ended(part)),
        None => ended,
    }
}

/// Everything that lives as long as the server.
struct Server {
    settings: Settings,
    /// How many files it may open.
    files: usize,
    supervisor: Supervisor,
    health: Health,
    metrics: Arc<Metrics>,
    notify: Notify,
    memory: MemoryStore,
    /// Clients of the control thread, while health depends on Redis.
    clients: Option<Clients>,
    memcached: Option<Memcached>,
    limiter: Limiter,
    overrides: LimitOverrides,
    /// The ports of rate limits.
    ports: Vec<Bounds>,
    workflows: Option<Workflows>,
    /// None: nothing is traced.
    traces: Option<Traces>,
    loader: Option<Loader>,
    /// What became of the configuration.
    latest: Latest,
}

impl Server {
    fn new(settings: Settings, files: usize, latest: Latest) -> Self {
        let healthy_unless = |needed| {
            if needed {
                Part::Unhealthy
            } else {
                Part::Healthy
            }
        };
        let memory = MemoryStore::new(settings.counters);
        let limiter = Limiter::new(Store::Memory(memory.clone()), settings.limiter.clone());
        let health = Health::new(
            healthy_unless(settings.redis.is_some()),
            healthy_unless(settings.health_needs_domain),
        );
        Self {
            supervisor: Supervisor::new(health.clone()),
            health,
            metrics: Arc::new(Metrics::new(settings.metrics.clone(), settings.cores)),
            overrides: LimitOverrides {
                store: OverrideStore::memory(),
                limiter: limiter.clone(),
            },
            limiter,
            notify: Notify::new(settings.notify.as_deref()),
            memory,
            clients: None,
            memcached: None,
            ports: Vec::new(),
            workflows: None,
            traces: None,
            loader: None,
            latest,
            files,
            settings,
        }
    }

    /// What the control thread does, from the start to the end of the server.
    async fn control(
        mut self,
        origin: &Origin,
        sockets: Sockets,
        mut asked: impl AsyncFnMut() -> Stop,
        started: impl FnOnce(&Started),
    ) -> Result<(), ServeError> {
        let hangups = signal(SignalKind::hangup())?;
        let mut addresses = sockets.addresses.clone();
        let supervisor = self.supervisor.clone();
        // However this ends: what ends after it was asked to.
        let _ended = supervisor.drain.clone().drop_guard();
        let gates = self.follow_files()?;
        tokio::select! {
            // First, so that a signal is waited for before anybody is told that the server has started.
            biased;
            _ = asked() => return Ok(()),
            ended = supervisor.failure() => return Err(ServeError::Ended(ended)),
            prepared = self.prepare(origin, &addresses) => prepared?,
        }
        self.open(sockets, gates).await?;
        if self.workflows.is_none() {
            addresses.api = None;
        }
        started(&self.started(addresses, origin));
        self.notify.ready();
        self.until(asked, hangups).await;
        Ok(())
    }

    /// Reads the certificates of ports, and follows those, the ones for stores, and tokens: while the start waits for a Redis that refuses a
    /// certificate, it can be renewed.
    fn follow_files(&self) -> Result<Gates, ServeError> {
        let (gates, ports) = Gates::open(&self.settings, &self.supervisor)?;
        let stores = self
            .settings
            .stores_tls
            .iter()
            .filter_map(StoreTls::followed);
        let tokens = self
            .settings
            .workflows
            .iter()
            .filter_map(|api| api.tokens.as_ref())
            .map(TokensFile::followed);
        follow(
            stores.chain(ports).chain(tokens).collect(),
            self.metrics.clone(),
            &self.supervisor,
        )?;
        Ok(gates)
    }

    /// Waits for everything that must be there before the ports open.
    async fn prepare(&mut self, origin: &Origin, addresses: &Addresses) -> Result<(), ServeError> {
        self.connect_store().await?;
        self.start_traces()?;
        if addresses.api.is_some() {
            self.start_workflows().await?;
        }
        self.load_configuration(origin).await
    }

    /// Waits for Redis, or finds memcached, if counters are there.
    async fn connect_store(&mut self) -> Result<(), ServeError> {
        if let Some(settings) = &self.settings.memcache {
            let memcached = Memcached::find(settings).await?;
            // Nobody asks this limiter without the API.
            if self.settings.workflows.is_some() {
                self.overrides.limiter = self.limiter.with_store(memcached.store().0);
            }
            self.memcached = Some(memcached);
            self.metrics.watch(self.limiter.clone(), None);
            return Ok(());
        }
        let Some(settings) = &self.settings.redis else {
            self.metrics
                .watch(self.limiter.clone(), Some(self.memory.clone()));
            return Ok(());
        };
        let clients = Clients::new(settings)?;
        redis::wait(settings, &clients).await?;
        self.health.set_store(Part::Healthy);
        self.metrics.watch(self.limiter.clone(), None);
        // Nobody can override limits without the API.
        if self.settings.workflows.is_some() {
            self.overrides.store =
                OverrideStore::redis(clients.main.clone(), &self.settings.limiter.key_prefix);
            self.overrides.limiter = self.limiter.with_store(store(clients.clone()));
            self.overrides.read_first().await;
        }
        // Cores have clients of their own.
        self.clients = Some(clients).filter(|_| settings.health == HealthCheck::Always);
        Ok(())
    }

    /// Starts the thread of the workflows, if they are on.
    async fn start_workflows(&mut self) -> Result<(), ServeError> {
        let Some(settings) = &self.settings.workflows else {
            return Ok(());
        };
        let workflows = Workflows::start(
            settings,
            (&self.health, &self.metrics, self.traces.as_ref()),
            self.limits(),
            &self.supervisor,
        )
        .await?;
        self.metrics.watch_workflows(workflows.activity.clone());
        self.workflows = Some(workflows);
        Ok(())
    }

    /// Loads the configuration, and starts to watch its files.
    async fn load_configuration(&mut self, origin: &Origin) -> Result<(), ServeError> {
        let target = Target {
            limiter: self.limiter.clone(),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            health_needs_domain: self.settings.health_needs_domain,
            same_domain: self.settings.files.same_domain,
            notify: self.notify.clone(),
            latest: self.latest.clone(),
        };
        let (sender, loaded) = oneshot::channel();
        match origin {
            Origin::BuiltIn(built_in) => {
                target.load_built_in(built_in);
                return Ok(());
            }
            Origin::Files(files) => {
                self.loader = Some(Loader::start(
                    files.clone(),
                    target,
                    sender,
                    &self.supervisor,
                )?);
            }
            Origin::Server(xds) => {
                Subscription::new(xds.as_ref().clone(), target, sender).start(&self.supervisor)?
            }
        }
        if self.settings.files.first_load == FirstLoad::BeforePorts {
            // An error means that the thread has ended, which the supervisor reports.
            let _ = loaded.await;
        }
        Ok(())
    }

    /// Starts all cores and opens all ports.
    async fn open(&mut self, sockets: Sockets, gates: Gates) -> Result<(), ServeError> {
        let Listeners {
            grpc,
            http,
            debug,
            prometheus,
            api,
        } = sockets.listen()?;
        let budget = Arc::new(Budget::new(UNFINISHED));
        let cores = cores::start(self.settings.cores, &self.supervisor, self.work(&budget)).await?;
        let shares = self.shares()?;
        match (&self.workflows, api) {
            (Some(workflows), Some(listener)) => {
                self.metrics
                    .watch_port(workflows.open(listener, gates.api, shares.api));
            }
            _ => self.await_port_of_api(gates.api, shares.api),
        }
        let bounds = |port, most| Bounds::new(port, most, Budget::new(UNFINISHED));
        self.ports = vec![
            Bounds::new("gRPC", shares.grpc, budget),
            bounds("HTTP", shares.http),
        ];
        let supervisor = &self.supervisor;
        let serve = |part, bounds: Bounds, listener, router| {
            self.metrics.watch_port(bounds.clone());
            supervisor.task(
                part,
                http::serve(listener, router, bounds, supervisor.clone()),
            );
        };
        let calls = self.ports[0].clone();
        self.metrics.watch_port(calls.clone());
        supervisor.task(
            "accept-grpc",
            cores
                .clone()
                .accept(grpc, gates.grpc, calls, supervisor.clone()),
        );
        serve(
            "accept-http",
            self.ports[1].clone(),
            http,
            json::router(cores, self.health.clone()),
        );
        if let Some(listener) = debug {
            let router = debug::router(
                self.limiter.clone(),
                self.metrics.clone(),
                self.supervisor.drain.clone(),
            );
            serve(
                "accept-debug",
                bounds("debug", shares.pages),
                listener,
                router,
            );
        }
        if let (Some(listener), Some((_, path))) = (prometheus, &self.settings.metrics.prometheus) {
            let router = debug::prometheus(self.metrics.clone(), path);
            serve(
                "accept-prometheus",
                bounds("Prometheus", shares.pages),
                listener,
                router,
            );
        }
        if let Some(settings) = &self.settings.metrics.statsd {
            statsd::start(settings, &self.metrics, &self.supervisor)?;
        }
        self.look_after_store();
        Ok(())
    }

    /// Starts the thread that sends traces, if they are wanted.
    fn start_traces(&mut self) -> Result<(), ServeError> {
        let Some(settings) = &self.settings.traces else {
            return Ok(());
        };
        let traces = Traces::start(settings, &self.supervisor)?;
        self.metrics.watch_traces(traces.clone());
        self.traces = Some(traces);
        Ok(())
    }

    /// Begins workflows, if they are wanted, as soon as no other process has their port.
    fn await_port_of_api(&mut self, gate: Option<Gate>, connections: Most) {
        // Another process may have taken the port since it was bound.
        let started = self.workflows.take();
        if self.settings.workflows.is_some() {
            let (settings, metrics) = (self.settings.clone(), self.metrics.clone());
            let (health, supervisor) = (self.health.clone(), self.supervisor.clone());
            let (limits, traces) = (self.limits(), self.traces.clone());
            let late = Late {
                settings,
                health,
                supervisor,
                metrics,
                started,
                gate,
                connections,
                limits,
                traces,
            };
            self.supervisor.task("api-port", late.run());
        }
    }

    /// How the ports share the files that may be open. To be asked when the cores have opened theirs.
    fn shares(&self) -> Result<Shares, ServeError> {
        let Settings {
            redis,
            workflows,
            cores,
            max_connections,
            max_connections_given,
            ..
        } = &self.settings;
        // Workflows have connections of their own, on as many threads.
        let workflows = workflows
            .iter()
            .filter(|_| self.workflows.is_some())
            .filter_map(|own| own.redis.as_ref());
        let servers = redis
            .iter()
            .flat_map(|redis| std::iter::once(&redis.main).chain(&redis.per_second))
            .chain(workflows);
        let of_redis: usize = servers
            .map(|server| server.config.max_connections * cores)
            .sum();
        let of_memcached = self
            .memcached
            .as_ref()
            .map_or(0, |memcached| memcached.connections() * cores);
        let files = Files::count(self.files, of_redis + of_memcached);
        if files.allowed < files.least() {
            return Err(ServeError::Files {
                allowed: files.allowed,
                least: files.least(),
            });
        }
        let shares = Shares::of(files, *max_connections);
        if let Some(warning) = shares.warning(files, *max_connections, *max_connections_given) {
            warn!("{warning}");
        }
        Ok(shares)
    }

    /// What each core serves with. Each makes its own clients of Redis or memcached.
    fn work(&self, budget: &Arc<Budget>) -> impl Fn(usize) -> Work + Clone + Send + 'static {
        let (settings, supervisor, health) = (
            self.settings.clone(),
            self.supervisor.clone(),
            self.health.clone(),
        );
        let (metrics, budget, limiter) = (
            self.metrics.clone(),
            budget.clone(),
            self.limiter_of_thread(),
        );
        let traces = self.traces.clone();
        move |core| {
            let calls = Calls::new(limiter(), metrics.shard(core), traces.clone(), &settings);
            let (health, supervisor) = (health.clone(), supervisor.clone());
            let health = HealthService {
                health,
                supervisor: supervisor.clone(),
                metrics: metrics.shard(core),
            };
            let services = Services::new(calls.clone(), health);
            Work {
                services,
                calls,
                age: settings.connection_age,
                budget: budget.clone(),
                supervisor,
            }
        }
    }

    /// Makes the limiter of another thread, with clients of Redis or memcached on the runtime of whoever calls.
    fn limiter_of_thread(&self) -> impl Fn() -> Limiter + Clone + Send + Sync + 'static {
        let (settings, memcached) = (self.settings.clone(), self.memcached.clone());
        let (metrics, limiter, memory) = (
            self.metrics.clone(),
            self.limiter.clone(),
            self.memory.clone(),
        );
        move || match (&settings.redis, &memcached) {
            (_, Some(memcached)) => {
                let (store, client) = memcached.store();
                metrics.watch_memcache(client);
                limiter.with_store(store)
            }
            (Some(redis), None) => {
                let clients = Clients::new(redis)
                    .expect("the client that waited was made of the same settings");
                metrics.watch_redis(clients.main.clone(), clients.per_second.clone());
                limiter.with_store(store(clients))
            }
            (None, None) => limiter.with_store(Store::Memory(memory.clone())),
        }
    }

    /// What workflows and their API have of the rate limits.
    fn limits(&self) -> Limits {
        let (limiter, metrics, overrides) = (
            self.limiter_of_thread(),
            self.metrics.clone(),
            self.overrides.clone(),
        );
        let timeout = patience(&self.settings);
        let counters = Counters::new(move || {
            JobUnits::new(
                limiter(),
                metrics.shard_of_jobs(),
                overrides.clone(),
                timeout,
            )
        });
        let LimitOverrides { store, limiter } = self.overrides.clone();
        Limits {
            counters,
            shown: RateLimits {
                limiter,
                overrides: store,
                clock: clock::now,
            },
            latest: self.latest.clone(),
        }
    }

    /// Starts what the store of counters needs while the server runs.
    fn look_after_store(&self) {
        let supervisor = &self.supervisor;
        supervisor.task("give-back", give_back(supervisor.clone()));
        if let OverrideStore::Redis(_) = self.overrides.store {
            supervisor.task(
                "overrides",
                self.overrides.clone().follow(supervisor.clone()),
            );
        }
        if let Some(memcached) = &self.memcached {
            return memcached.look_after(supervisor);
        }
        match (&self.clients, &self.settings.redis) {
            (Some(clients), _) => {
                supervisor.task(
                    "redis-health",
                    redis::follow(clients.clone(), self.health.clone(), supervisor.clone()),
                );
            }
            (None, None) => supervisor.task(
                "purge",
                memory::purge(self.memory.clone(), supervisor.clone()),
            ),
            (None, Some(_)) => {}
        }
    }

    fn started(&self, addresses: Addresses, origin: &Origin) -> Started {
        let api = self
            .settings
            .workflows
            .as_ref()
            .and_then(|workflows| workflows.tls.as_ref());
        Started {
            addresses,
            grpc_encryption: Encryption::of(self.settings.grpc_tls.as_ref()),
            api_encryption: Encryption::of(api),
            store: match (&self.settings.redis, &self.settings.memcache) {
                (Some(redis), _) => redis.to_string(),
                (None, Some(memcache)) => memcache.to_string(),
                (None, None) => "memory of this process".to_owned(),
            },
            workflows: self
                .workflows
                .as_ref()
                .map(|workflows| workflows.store.clone()),
            configuration: origin.to_string(),
            loaded: self.loaded(),
        }
    }

    fn loaded(&self) -> Loaded {
        let folder = self.settings.files.folder();
        match self.limiter.configuration() {
            Some(configuration) => match example(&configuration) {
                Some(example) => Loaded::Limits { example },
                None if self.settings.xds.is_some() => Loaded::NoneSent,
                None => Loaded::NoLimits { folder },
            },
            None if self.settings.xds.is_some() => Loaded::NoneSent,
            None if self.settings.files.first_load == FirstLoad::AfterPorts => Loaded::Later,
            None => Loaded::Mistakes { folder },
        }
    }

    /// Serves until it is asked to end, or until a part of the server has ended, then drains.
    async fn until(self, mut asked: impl AsyncFnMut() -> Stop, mut hangups: Signal) {
        loop {
            tokio::select! {
                stop = asked() => {
                    self.notify.stopping();
                    self.health.stopping();
                    let delay = Delay { length: self.settings.drain.delay, ports: &self.ports };
                    tokio::select! {
                        () = delay.pass(stop, &mut asked) => {}
                        _ = self.supervisor.failure() => {}
                    }
                    break;
                }
                _ = self.supervisor.failure() => break,
                _ = hangups.recv() => self.reload(),
            }
        }
        self.supervisor.drain.cancel();
        self.supervisor.tasks.close();
        if timeout(self.settings.drain.timeout, self.supervisor.tasks.wait())
            .await
            .is_err()
        {
            warn!(
                open = self.supervisor.tasks.len(),
                "the drain timeout is over; open connections are closed"
            );
        }
        if let Some(memcached) = &self.memcached {
            memcached.settle().await;
        }
    }

    /// Loads the configuration again, as SIGHUP asks.
    fn reload(&self) {
        match &self.loader {
            Some(loader) => {
                self.notify.reloading();
                loader.reload();
            }
            None => {
                info!("the configuration does not come from files: there is nothing to load again")
            }
        }
    }
}

fn store(clients: Clients) -> Store {
    Store::Redis(RedisStore::new(clients.main, clients.per_second))
}
