//! From settings to a server that answers, and to its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_ratelimit::{Limiter, MemoryStore, RedisStore, Store};
use tokio::sync::oneshot;
use tokio::time::{interval, sleep, timeout};
use tracing::{info, warn};

use crate::configure::{Origin, Reloader, Target};
use crate::edge::cores::{self, Work};
use crate::edge::http;
use crate::edge::listen::{Addresses, Listeners, Sockets};
use crate::error::ServeError;
use crate::operate::debug;
use crate::operate::health::{Health, HealthService, Part};
use crate::operate::metrics::Metrics;
use crate::rls::call::Calls;
use crate::rls::grpc::Services;
use crate::rls::redis::Clients;
use crate::rls::{json, redis};
use crate::settings::{Files, FirstLoad, HealthCheck, Scope, Settings};
use crate::supervise::Life;
use crate::workflows::Workflows;

/// Wait between two looks for counters whose window has passed.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

/// How often the allocator is asked for something after counters were dropped, and for how much: more than it keeps at hand.
const NUDGES: u32 = 4;
const NUDGE: usize = 4 << 20;

/// What a server that has started tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Where it listens.
    pub addresses: Addresses,
    /// Where counters are, without credentials.
    pub store: String,
    /// Where workflows are, without credentials; none when they are not wanted.
    pub workflows: Option<String>,
    /// Where limits come from.
    pub configuration: String,
}

/// Serves until `shutdown` completes and what was begun is finished, or the drain timeout is over.
///
/// Ports are bound at once and opened when Redis answers and the configuration is loaded; then `started` is called, on the
/// caller's thread, which is the first core's. Must be called outside any runtime.
///
/// # Errors
/// The server cannot start. Once `started` was called there are none.
pub fn run(
    settings: Settings,
    shutdown: impl Future<Output = ()>,
    started: impl FnOnce(&Started),
) -> Result<(), ServeError> {
    let origin = Origin::new(&settings.files);
    if let Origin::Files(Files { root, first_load: FirstLoad::BeforePorts, .. }) = &origin
        && !root.exists()
    {
        return Err(ServeError::NoRoot { path: root.clone() });
    }
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
    life: Life,
    health: Health,
    metrics: Arc<Metrics>,
    memory: MemoryStore,
    /// Of the first core.
    clients: Option<Clients>,
    limiter: Limiter,
    workflows: Option<Workflows>,
    reloader: Option<Reloader>,
}

impl Server {
    fn new(settings: Settings) -> Self {
        let unless = |needed| if needed { Part::Unhealthy } else { Part::Healthy };
        let health = Health::new(unless(settings.redis.is_some()), unless(settings.health_needs_domain));
        let memory = MemoryStore::new(settings.max_keys);
        Self {
            life: Life::default(),
            health,
            metrics: Arc::new(Metrics::new(settings.metrics.clone(), settings.cores)),
            limiter: Limiter::new(Store::Memory(memory.clone()), settings.limiter.clone()),
            memory,
            clients: None,
            workflows: None,
            reloader: None,
            settings,
        }
    }

    /// Waits for what must be there before a port opens.
    async fn prepare(&mut self, origin: &Origin) -> Result<(), ServeError> {
        if let Some(settings) = &self.settings.redis {
            let clients = Clients::new(settings)?;
            redis::wait(settings, &clients).await?;
            self.health.set_store(Part::Healthy);
            self.limiter = self.limiter.with_store(Store::Redis(store(&clients)));
            self.metrics.watch_redis(clients.main.clone(), clients.per_second.clone());
            self.clients = Some(clients);
        }
        if let Some(settings) = &self.settings.workflows {
            let redis = self.settings.redis.as_ref();
            let workflows = Workflows::start(settings, redis, &self.health, &self.life).await?;
            self.metrics.watch_workflows(workflows.activity.clone());
            self.workflows = Some(workflows);
        }
        let memory = self.clients.is_none().then(|| self.memory.clone());
        self.metrics.watch(self.limiter.clone(), memory);
        self.load(origin).await
    }

    async fn load(&mut self, origin: &Origin) -> Result<(), ServeError> {
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
                self.reloader = Some(Reloader::start(files.clone(), target, sender)?);
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
        let spawn_http = |listener, router| self.life.tasks.spawn(http::serve(listener, router, self.life.clone()));
        let (doors, running) = cores::start(self.settings.cores, self.work())?;
        self.life.tasks.spawn(doors.accept(grpc, self.life.clone()));
        spawn_http(http, json::router(self.calls(0, self.limiter.clone()), self.health.clone()));
        if let Some(listener) = debug {
            spawn_http(listener, debug::router(self.limiter.clone(), self.metrics.clone()));
        }
        if let (Some(listener), Some((_, path))) = (prometheus, &self.settings.metrics.prometheus) {
            spawn_http(listener, debug::prometheus(self.metrics.clone(), path));
        }
        match (&self.clients, &self.settings.redis) {
            (Some(clients), Some(settings)) if settings.health == HealthCheck::Always => {
                self.life.tasks.spawn(redis::follow(clients.clone(), self.health.clone(), self.life.clone()));
            }
            (None, _) => {
                self.life.tasks.spawn(purge(self.memory.clone(), self.life.clone()));
            }
            _ => {}
        }
        Ok(running)
    }

    fn calls(&self, core: usize, limiter: Limiter) -> Calls {
        calls(&self.settings, &self.metrics, core, limiter)
    }

    /// What each core serves with; the first uses the clients that waited for Redis, the others make their own.
    fn work(&self) -> impl Fn(usize) -> Work + Clone + Send + 'static {
        let (settings, life, health) = (self.settings.clone(), self.life.clone(), self.health.clone());
        let (metrics, limiter) = (self.metrics.clone(), self.limiter.clone());
        move |core| {
            let limiter = match &settings.redis {
                Some(redis) if core > 0 => {
                    let clients = Clients::new(redis).expect("the first core's client was made of the same settings");
                    metrics.watch_redis(clients.main.clone(), clients.per_second.clone());
                    limiter.with_store(Store::Redis(store(&clients)))
                }
                _ => limiter.clone(),
            };
            let calls = calls(&settings, &metrics, core, limiter);
            let health = HealthService { health: health.clone(), life: life.clone(), metrics: metrics.shard(core) };
            Work { services: Services::new(calls, health), age: settings.connection_age, life: life.clone() }
        }
    }

    fn started(&self, addresses: Addresses, origin: &Origin) -> Started {
        let store = match &self.settings.redis {
            None => "memory of this process".to_owned(),
            Some(redis) => match &redis.per_second {
                None => format!("redis at {}", redis.main.shown),
                Some(second) => format!("redis at {}, per second limits at {}", redis.main.shown, second.shown),
            },
        };
        let configuration = match origin {
            Origin::Sample => "built-in sample (set RUNTIME_ROOT to a folder of your own)".to_owned(),
            Origin::Files(files) => {
                let subdirectory = files.root.join(&files.subdirectory);
                match files.scope {
                    Scope::AppDirectory => subdirectory.join(&files.app_directory).display().to_string(),
                    Scope::Subdirectory => {
                        format!("{} (files under {})", subdirectory.display(), files.app_directory.display())
                    }
                }
            }
        };
        let workflows = self.workflows.as_ref().map(|workflows| workflows.store.clone());
        Started { addresses, store, workflows, configuration }
    }

    /// Serves until `shutdown`, then drains.
    async fn until(self, shutdown: Pin<&mut impl Future<Output = ()>>, running: cores::Running) {
        shutdown.await;
        info!("draining");
        self.health.stopping();
        sleep(self.settings.drain.delay).await;
        self.life.drain.cancel();
        self.life.tasks.close();
        if timeout(self.settings.drain.timeout, self.life.tasks.wait()).await.is_err() {
            warn!(open = self.life.tasks.len(), "the drain timeout is over; what is still open is cut");
        }
        self.life.stop.cancel();
        running.join().await;
        if let Some(workflows) = self.workflows {
            workflows.join();
        }
        drop(self.reloader);
        info!("stopped");
    }
}

fn store(clients: &Clients) -> RedisStore {
    RedisStore::new(clients.main.clone(), clients.per_second.clone())
}

fn calls(settings: &Settings, metrics: &Metrics, core: usize, limiter: Limiter) -> Calls {
    let servers = settings.redis.iter().flat_map(|redis| std::iter::once(&redis.main).chain(&redis.per_second));
    let timeout = servers.map(|server| server.timeout).fold(settings.call_timeout, Duration::min);
    Calls::new(limiter, metrics.shard(core), timeout, settings.header_names.clone())
}

/// Gives back the memory of counters whose window has passed.
async fn purge(memory: MemoryStore, life: Life) {
    let mut ticks = interval(PURGE_INTERVAL);
    let mut nudges = 0;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if memory.purge(crate::clock::now()) > 0 {
                    nudges = NUDGES;
                } else if nudges > 0 {
                    nudges -= 1;
                    // The allocator gives pages back a while after they were freed, and only when it is asked for something.
                    drop(std::hint::black_box(Vec::<u8>::with_capacity(NUDGE)));
                }
            }
            () = life.drain.cancelled() => return,
        }
    }
}
