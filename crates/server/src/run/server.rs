//! Life of a server: start, service and end.
//!
//! The order is that of [`run`]: `prepare` waits for the dependencies, `ports` opens the ports, and
//! `limiter` creates the services of the other threads. Then [`Server::serve_until_stopped`] waits
//! for the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tidegate_ratelimit::{Limiter, MemoryStore, OverrideStore, Store};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tracing::{info, warn};

use super::banner::{Encryption, LoadResult, Started, example};
use super::drain::{DrainDelay, StopSignal};
use crate::base::clock;
use crate::net::bounds::{self, PortBounds};
use crate::net::listen::{Addresses, Sockets};
use crate::rls::overrides::LimitOverrides;
use crate::rls::reload::{ConfigLoader, ConfigOrigin, LoadStatus};
use crate::rls::store::memcache::Memcached;
use crate::rls::store::redis::RedisClients;
use crate::settings::{FirstLoad, Settings};
use crate::supervise::error::ServeError;
use crate::supervise::health::{Health, PartHealth};
use crate::supervise::notify::Notify;
use crate::supervise::runtime::ThreadRuntime;
use crate::supervise::{EndCause, Supervisor, UnexpectedEnd, failpoint};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::Traces;
use crate::workflows::Workflows;

/// Name of the control thread.
const CONTROL_THREAD: &str = "control";
/// Time in which threads must end after they were stopped. It covers a last write to a slow disk. A
/// thread that blocks in the system (a DNS lookup, a file on a network) would otherwise keep the
/// process.
const THREAD_END_TIMEOUT: Duration = Duration::from_secs(5);

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
    next_stop: impl AsyncFnMut() -> StopSignal,
    started: impl FnOnce(&Started),
) -> Result<(), ServeError> {
    let origin = ConfigOrigin::new(&settings)?;
    let max_open_files = bounds::raise_open_file_limit();
    let sockets = Sockets::bind(&settings)?;
    let runtime = ThreadRuntime::new()?;
    let server = Server::new(settings, max_open_files, LoadStatus::new(&origin));
    let supervisor = server.supervisor.clone();
    let control = failpoint::with(
        CONTROL_THREAD.into(),
        server.control(&origin, sockets, next_stop, started),
    );
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(control))).unwrap_or_else(|_| {
        supervisor.report_end(UnexpectedEnd {
            part: CONTROL_THREAD.into(),
            how: EndCause::Panicked,
        });
        Ok(())
    });
    supervisor.drain.cancel();
    supervisor.stop.cancel();
    drop(runtime);
    ThreadRuntime::new()?.block_on(supervisor.join(THREAD_END_TIMEOUT));
    info!("stopped");
    match supervisor.first_failure() {
        Some(part) => Err(ServeError::Ended(part)),
        None => ended,
    }
}

/// State that lives as long as the server.
pub(crate) struct Server {
    pub(crate) settings: Settings,
    /// Limit of open files.
    pub(crate) max_open_files: usize,
    pub(crate) supervisor: Supervisor,
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) notify: Notify,
    pub(crate) memory: MemoryStore,
    /// Redis clients of the control thread, if health depends on Redis.
    pub(crate) clients: Option<RedisClients>,
    pub(crate) memcached: Option<Memcached>,
    pub(crate) limiter: Limiter,
    pub(crate) overrides: LimitOverrides,
    /// Ports for rate limit calls.
    pub(crate) ports: Vec<PortBounds>,
    pub(crate) workflows: Option<Workflows>,
    /// None if traces are off.
    pub(crate) traces: Option<Traces>,
    pub(crate) loader: Option<ConfigLoader>,
    /// Status of the latest load of the configuration.
    pub(crate) load_status: LoadStatus,
}

impl Server {
    fn new(settings: Settings, max_open_files: usize, load_status: LoadStatus) -> Self {
        let memory = MemoryStore::new(settings.counters);
        let limiter = Limiter::new(Store::Memory(memory.clone()), settings.limiter.clone());
        let health = Health::new(
            PartHealth::healthy_if(settings.redis.is_none()),
            PartHealth::healthy_if(!settings.health_needs_domain),
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
            load_status,
            max_open_files,
            settings,
        }
    }

    /// Runs the control thread from the start to the end of the server.
    async fn control(
        mut self,
        origin: &ConfigOrigin,
        sockets: Sockets,
        mut next_stop: impl AsyncFnMut() -> StopSignal,
        started: impl FnOnce(&Started),
    ) -> Result<(), ServeError> {
        let hangups = signal(SignalKind::hangup())?;
        let mut addresses = sockets.addresses.clone();
        let supervisor = self.supervisor.clone();
        // However this future ends, the parts that watch the drain token end, too.
        let _ended = supervisor.drain.clone().drop_guard();
        let acceptors = self.watch_files()?;
        tokio::select! {
            // Signals come first, so that their handlers exist before the server reports its start.
            biased;
            _ = next_stop() => return Ok(()),
            ended = supervisor.wait_for_failure() => return Err(ServeError::Ended(ended)),
            prepared = self.prepare(origin, &addresses) => prepared?,
        }
        self.open(sockets, acceptors).await?;
        if self.workflows.is_none() {
            addresses.api = None;
        }
        started(&self.started(addresses, origin));
        self.notify.ready();
        self.serve_until_stopped(next_stop, hangups).await;
        Ok(())
    }

    fn started(&self, addresses: Addresses, origin: &ConfigOrigin) -> Started {
        let api = self
            .settings
            .workflows
            .as_ref()
            .and_then(|workflows| workflows.tls.as_ref());
        Started {
            addresses,
            grpc_encryption: Encryption::for_port(self.settings.grpc_tls.as_ref()),
            api_encryption: Encryption::for_port(api),
            store: self.counter_store(),
            workflows: self
                .workflows
                .as_ref()
                .map(|workflows| workflows.store.clone()),
            configuration: origin.to_string(),
            loaded: self.load_result(),
        }
    }

    /// Location of the counters for people, without credentials.
    pub(super) fn counter_store(&self) -> String {
        match (&self.settings.redis, &self.settings.memcache) {
            (Some(redis), _) => redis.to_string(),
            (None, Some(memcache)) => memcache.to_string(),
            (None, None) => "memory of this process".to_owned(),
        }
    }

    fn load_result(&self) -> LoadResult {
        let folder = self.settings.files.folder();
        match self.limiter.configuration() {
            Some(configuration) => match example(&configuration) {
                Some(example) => LoadResult::Limits { example },
                None if self.settings.xds.is_some() => LoadResult::NoneSent,
                None => LoadResult::NoLimits { folder },
            },
            None if self.settings.xds.is_some() => LoadResult::NoneSent,
            None if self.settings.files.first_load == FirstLoad::AfterPorts => {
                LoadResult::NotYetLoaded
            }
            None => LoadResult::Mistakes { folder },
        }
    }

    /// Serves until a signal or the failure of a part, then drains.
    async fn serve_until_stopped(
        self,
        mut next_stop: impl AsyncFnMut() -> StopSignal,
        mut hangups: Signal,
    ) {
        loop {
            tokio::select! {
                stop = next_stop() => {
                    self.notify.stopping();
                    let delay = self.settings.drain.delay;
                    self.health.stopping(clock::workflow_now() + delay);
                    let delay = DrainDelay { length: delay, ports: &self.ports };
                    tokio::select! {
                        () = delay.wait(stop, &mut next_stop) => {}
                        _ = self.supervisor.wait_for_failure() => {}
                    }
                    break;
                }
                _ = self.supervisor.wait_for_failure() => break,
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
            memcached.flush().await;
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
