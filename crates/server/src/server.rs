//! Life of a server: start, service and end.
//!
//! The order is that of [`run`]: `prepare` waits for the dependencies, `ports` opens the ports, and
//! `limiter` creates the services of the other threads. Then [`Server::serve_until_stopped`] waits
//! for the end.

mod limiter;
mod ports;
mod prepare;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tidegate_ratelimit::{Limiter, MemoryStore, OverrideStore, Store};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::drain::{Delay, Stop};
use crate::error::ServeError;
use crate::net::bounds::{self, Bounds};
use crate::net::listen::{Addresses, Sockets};
use crate::net::runtime::ThreadRuntime;
use crate::reload::{LoadStatus, Loader, Origin};
use crate::rls::memcache::Memcached;
use crate::rls::overrides::LimitOverrides;
use crate::rls::redis::Clients;
use crate::settings::{FirstLoad, Settings};
use crate::supervise::{EndCause, Supervisor, UnexpectedEnd, failpoint};
use crate::telemetry::banner::{Encryption, Loaded, Started, example};
use crate::telemetry::health::{Health, PartHealth};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::notify::Notify;
use crate::telemetry::traces::Traces;
use crate::workflows::Workflows;

/// Name of the control thread.
const CONTROL: &str = "control";
/// Time in which threads must end after they were stopped. It covers a last write to a slow disk. A
/// thread that blocks in the system (a DNS lookup, a file on a network) would otherwise keep the
/// process.
const END: Duration = Duration::from_secs(5);
/// Serves until `next_stop` completes, then for the drain delay, and then until the calls in flight
/// have ended or the drain timeout is over. When `next_stop` completes a second time, the delay
/// ends. SIGHUP reloads the configuration.
///
/// Ports are bound at once, and opened when Redis answers and the configuration is loaded. Then
/// `started` is called on the caller's thread. This is the control thread: it accepts connections
/// and serves health, metrics and signals, but decides no rate limits. Must be called outside any
/// runtime.
///
/// # Errors
/// The server cannot start, or a part of it ended unexpectedly.
pub fn run(
    settings: Settings,
    asked: impl AsyncFnMut() -> Stop,
    started: impl FnOnce(&Started),
) -> Result<(), ServeError> {
    let origin = Origin::new(&settings)?;
    let files = bounds::raise();
    let sockets = Sockets::bind(&settings)?;
    let runtime = ThreadRuntime::new()?;
    let server = Server::new(settings, files, LoadStatus::new(&origin));
    let supervisor = server.supervisor.clone();
    let control = failpoint::with(
        CONTROL.into(),
        server.control(&origin, sockets, asked, started),
    );
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(control))).unwrap_or_else(|_| {
        supervisor.fail(UnexpectedEnd {
            part: CONTROL.into(),
            how: EndCause::Panicked,
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

/// State that lives as long as the server.
struct Server {
    settings: Settings,
    /// Limit of open files.
    files: usize,
    supervisor: Supervisor,
    health: Health,
    metrics: Arc<Metrics>,
    notify: Notify,
    memory: MemoryStore,
    /// Redis clients of the control thread, if health depends on Redis.
    clients: Option<Clients>,
    memcached: Option<Memcached>,
    limiter: Limiter,
    overrides: LimitOverrides,
    /// Ports for rate limit calls.
    ports: Vec<Bounds>,
    workflows: Option<Workflows>,
    /// None if traces are off.
    traces: Option<Traces>,
    loader: Option<Loader>,
    /// Status of the latest load of the configuration.
    latest: LoadStatus,
}

impl Server {
    fn new(settings: Settings, files: usize, latest: LoadStatus) -> Self {
        let healthy_unless = |needed| {
            if needed {
                PartHealth::Unhealthy
            } else {
                PartHealth::Healthy
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

    /// Runs the control thread from the start to the end of the server.
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
        // However this future ends, the parts that watch the drain token end, too.
        let _ended = supervisor.drain.clone().drop_guard();
        let gates = self.follow_files()?;
        tokio::select! {
            // Signals come first, so that their handlers exist before the server reports its start.
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

    /// Serves until a signal or the failure of a part, then drains.
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

    /// Reloads the configuration, for SIGHUP.
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
