//! From settings to a server that answers, and to its end.
//!
//! Read from [`run`] downward, in the order in which a server starts: sockets, store, workflows, configuration, cores; then
//! [`Server::until`] waits for the end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tidegate_ratelimit::{Limiter, MemoryStore, RedisStore, Store};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::configure::{Loader, Origin, Target};
use crate::edge::cores::{self, Work};
use crate::edge::http;
use crate::edge::listen::{Addresses, Listeners, Sockets};
use crate::error::ServeError;
use crate::operate::banner::{Loaded, Started, example};
use crate::operate::debug;
use crate::operate::health::{Health, HealthService, Part};
use crate::operate::metrics::Metrics;
use crate::rls::call::Calls;
use crate::rls::grpc::Services;
use crate::rls::redis::Clients;
use crate::rls::{json, memory, redis};
use crate::settings::{FirstLoad, HealthCheck, Settings};
use crate::supervise::Supervisor;
use crate::workflows::Workflows;

/// Serves until `shutdown` completes and the calls in flight have ended, or the drain timeout is over.
///
/// Ports are bound at once. They are opened when Redis answers and the configuration is loaded. Then `started` is called, on the
/// caller's thread, which is the first core's. Must be called outside any runtime.
///
/// # Errors
/// The server cannot start. Once `started` was called there are none.
pub fn run(
    settings: Settings,
    shutdown: impl Future<Output = ()>,
    started: impl FnOnce(&Started),
) -> Result<(), ServeError> {
    let origin = Origin::new(&settings.files)?;
    let sockets = Sockets::bind(&settings)?;
    let addresses = sockets.addresses.clone();
    let runtime = cores::runtime()?;
    let ended = runtime.block_on(async {
        let mut server = Server::new(settings);
        tokio::pin!(shutdown);
        tokio::select! {
            // First, so that a signal is waited for before anybody is told that the server has started.
            biased;
            () = shutdown.as_mut() => return Ok(()),
            prepared = server.prepare(&origin) => prepared?,
        }
        let running = server.open(sockets)?;
        started(&server.started(addresses.clone(), &origin));
        server.until(shutdown, running).await;
        Ok(())
    });
    addresses.clean_up();
    ended
}

/// Everything that lives as long as the server.
struct Server {
    settings: Settings,
    supervisor: Supervisor,
    health: Health,
    metrics: Arc<Metrics>,
    memory: MemoryStore,
    /// The clients of the first core. None: counters are in memory.
    clients: Option<Clients>,
    limiter: Limiter,
    workflows: Option<Workflows>,
    loader: Option<Loader>,
}

impl Server {
    fn new(settings: Settings) -> Self {
        let healthy_unless = |needed| if needed { Part::Unhealthy } else { Part::Healthy };
        let memory = MemoryStore::new(settings.counters);
        Self {
            supervisor: Supervisor::default(),
            health: Health::new(healthy_unless(settings.redis.is_some()), healthy_unless(settings.health_needs_domain)),
            metrics: Arc::new(Metrics::new(settings.metrics.clone(), settings.cores)),
            limiter: Limiter::new(Store::Memory(memory.clone()), settings.limiter.clone()),
            memory,
            clients: None,
            workflows: None,
            loader: None,
            settings,
        }
    }

    /// Waits for everything that must be there before the ports open.
    async fn prepare(&mut self, origin: &Origin) -> Result<(), ServeError> {
        self.connect_store().await?;
        self.start_workflows().await?;
        self.load_configuration(origin).await
    }

    /// Waits for Redis, if counters are there.
    async fn connect_store(&mut self) -> Result<(), ServeError> {
        let Some(settings) = &self.settings.redis else {
            self.metrics.watch(self.limiter.clone(), Some(self.memory.clone()));
            return Ok(());
        };
        let clients = Clients::new(settings)?;
        redis::wait(settings, &clients).await?;
        self.health.set_store(Part::Healthy);
        self.limiter = self.limiter.with_store(store(&clients));
        self.metrics.watch(self.limiter.clone(), None);
        self.metrics.watch_redis(clients.main.clone(), clients.per_second.clone());
        self.clients = Some(clients);
        Ok(())
    }

    /// Opens the store of workflows and starts their thread, if workflows are on.
    async fn start_workflows(&mut self) -> Result<(), ServeError> {
        let Some(settings) = &self.settings.workflows else { return Ok(()) };
        let redis = self.settings.redis.as_ref();
        let workflows = Workflows::start(settings, redis, &self.health, &self.supervisor).await?;
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
        };
        match origin {
            Origin::Sample => target.load_sample(),
            Origin::Files(files) => {
                let (sender, loaded) = oneshot::channel();
                self.loader = Some(Loader::start(files.clone(), target, sender)?);
                if files.first_load == FirstLoad::BeforePorts && loaded.await.is_err() {
                    warn!("the thread that loads configurations ended");
                }
            }
        }
        Ok(())
    }

    /// Starts all cores and opens all ports.
    fn open(&mut self, sockets: Sockets) -> Result<cores::Running, ServeError> {
        let Listeners { grpc, http, debug, prometheus, api } = sockets.listen()?;
        if let (Some(workflows), Some(listener)) = (&mut self.workflows, api) {
            workflows.open(listener);
        }
        let (doors, running) = cores::start(self.settings.cores, self.work())?;
        let tasks = &self.supervisor.tasks;
        let spawn_http = |listener, router| tasks.spawn(http::serve(listener, router, self.supervisor.clone()));
        tasks.spawn(doors.accept(grpc, self.supervisor.clone()));
        let calls = Calls::new(self.limiter.clone(), self.metrics.shard(0), &self.settings);
        spawn_http(http, json::router(calls, self.health.clone()));
        if let Some(listener) = debug {
            spawn_http(listener, debug::router(self.limiter.clone(), self.metrics.clone()));
        }
        if let (Some(listener), Some((_, path))) = (prometheus, &self.settings.metrics.prometheus) {
            spawn_http(listener, debug::prometheus(self.metrics.clone(), path));
        }
        self.look_after_store();
        Ok(running)
    }

    /// What each core serves with. The first uses the clients that waited for Redis, the others make their own.
    fn work(&self) -> impl Fn(usize) -> Work + Clone + Send + 'static {
        let (settings, supervisor, health) = (self.settings.clone(), self.supervisor.clone(), self.health.clone());
        let (metrics, limiter, memory) = (self.metrics.clone(), self.limiter.clone(), self.memory.clone());
        move |core| {
            let limiter = match &settings.redis {
                Some(redis) if core > 0 => {
                    let clients = Clients::new(redis).expect("the first core's client was made of the same settings");
                    metrics.watch_redis(clients.main.clone(), clients.per_second.clone());
                    limiter.with_store(store(&clients))
                }
                None if core > 0 => limiter.with_store(Store::Memory(memory.clone())),
                _ => limiter.clone(),
            };
            let calls = Calls::new(limiter, metrics.shard(core), &settings);
            let (health, supervisor) = (health.clone(), supervisor.clone());
            let health = HealthService { health, supervisor: supervisor.clone(), metrics: metrics.shard(core) };
            Work { services: Services::new(calls, health), age: settings.connection_age, supervisor }
        }
    }

    /// Starts what the store of counters needs while the server runs.
    fn look_after_store(&self) {
        let (tasks, supervisor) = (&self.supervisor.tasks, self.supervisor.clone());
        match (&self.clients, &self.settings.redis) {
            (Some(clients), Some(settings)) if settings.health == HealthCheck::Always => {
                tasks.spawn(redis::follow(clients.clone(), self.health.clone(), supervisor));
            }
            (None, _) => {
                tasks.spawn(memory::purge(self.memory.clone(), supervisor));
            }
            _ => {}
        }
    }

    fn started(&self, addresses: Addresses, origin: &Origin) -> Started {
        Started {
            addresses,
            store: self
                .settings
                .redis
                .as_ref()
                .map_or_else(|| "memory of this process".to_owned(), ToString::to_string),
            workflows: self.workflows.as_ref().map(|workflows| workflows.store.clone()),
            configuration: origin.to_string(),
            loaded: self.loaded(),
        }
    }

    fn loaded(&self) -> Loaded {
        let folder = self.settings.files.folder();
        match self.limiter.configuration() {
            Some(configuration) => match example(&configuration) {
                Some(example) => Loaded::Limits { example },
                None => Loaded::NoLimits { folder },
            },
            None if self.settings.files.first_load == FirstLoad::AfterPorts => Loaded::Later,
            None => Loaded::Mistakes { folder },
        }
    }

    /// Serves until `shutdown`, then drains.
    async fn until(self, shutdown: Pin<&mut impl Future<Output = ()>>, running: cores::Running) {
        shutdown.await;
        info!("draining");
        self.health.stopping();
        sleep(self.settings.drain.delay).await;
        self.supervisor.drain.cancel();
        self.supervisor.tasks.close();
        if timeout(self.settings.drain.timeout, self.supervisor.tasks.wait()).await.is_err() {
            warn!(open = self.supervisor.tasks.len(), "the drain timeout is over; open connections are closed");
        }
        self.supervisor.stop.cancel();
        running.join().await;
        if let Some(workflows) = self.workflows {
            workflows.join();
        }
        drop(self.loader);
        info!("stopped");
    }
}

fn store(clients: &Clients) -> Store {
    Store::Redis(RedisStore::new(clients.main.clone(), clients.per_second.clone()))
}
