//! Dependencies of the ports: certificates, the counter store, workflows and the configuration.

use tidegate_ratelimit::OverrideStore;
use tokio::sync::oneshot;

use super::limiter::redis_store;
use super::server::Server;
use crate::net::certificate_reload::watch;
use crate::net::listen::Addresses;
use crate::net::tls::PortTlsAcceptors;
use crate::rls::reload::xds::Subscription;
use crate::rls::reload::{ConfigLoader, ConfigOrigin, ConfigTarget};
use crate::rls::store::memcache::Memcached;
use crate::rls::store::redis::{self, RedisClients};
use crate::settings::{FirstLoad, HealthCheck, TokensFile};
use crate::supervise::error::ServeError;
use crate::supervise::health::PartHealth;
use crate::telemetry::traces::Traces;
use crate::tls::StoreTls;
use crate::workflows::Workflows;

impl Server {
    /// Loads the certificates of the ports, and watches them, the certificates for stores and the
    /// tokens. If Redis refuses a certificate at start, it can then be renewed while the server
    /// waits.
    pub(super) fn watch_files(&self) -> Result<PortTlsAcceptors, ServeError> {
        let (acceptors, ports) = PortTlsAcceptors::open(&self.settings, &self.supervisor)?;
        let stores = self
            .settings
            .stores_tls
            .iter()
            .filter_map(StoreTls::watched_files);
        let tokens = self
            .settings
            .workflows
            .iter()
            .filter_map(|api| api.tokens.as_ref())
            .map(TokensFile::watched_files);
        watch(
            stores.chain(ports).chain(tokens).collect(),
            self.metrics.certificates.clone(),
            &self.supervisor,
        )?;
        Ok(acceptors)
    }

    /// Waits for all dependencies of the ports.
    pub(super) async fn prepare(
        &mut self,
        origin: &ConfigOrigin,
        addresses: &Addresses,
    ) -> Result<(), ServeError> {
        self.connect_store().await?;
        self.start_traces()?;
        if addresses.api.is_some() {
            self.start_workflows().await?;
        }
        self.load_configuration(origin).await
    }

    /// Waits for Redis, or resolves memcached, if counters are stored there.
    async fn connect_store(&mut self) -> Result<(), ServeError> {
        if let Some(settings) = &self.settings.memcache {
            let memcached = Memcached::find(settings).await?;
            // Without the API, this limiter has no user.
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
        let clients = RedisClients::new(settings)?;
        redis::wait_for_all(settings, &clients).await?;
        self.health.set_store(PartHealth::Healthy);
        self.metrics.watch(self.limiter.clone(), None);
        // Without the API, no client can override limits.
        if self.settings.workflows.is_some() {
            self.overrides.store =
                OverrideStore::redis(clients.main.clone(), &self.settings.limiter.key_prefix);
            self.overrides.limiter = self.limiter.with_store(redis_store(clients.clone()));
            self.overrides.read_first().await;
        }
        // The cores have their own clients.
        self.clients = Some(clients).filter(|_| settings.health == HealthCheck::Always);
        Ok(())
    }

    /// Starts the thread that exports traces, if they are enabled.
    fn start_traces(&mut self) -> Result<(), ServeError> {
        let Some(settings) = &self.settings.traces else {
            return Ok(());
        };
        let traces = Traces::start(settings, &self.supervisor)?;
        self.metrics.watch_traces(traces.clone());
        self.traces = Some(traces);
        Ok(())
    }

    /// Starts the threads of the workflows, if they are enabled.
    async fn start_workflows(&mut self) -> Result<(), ServeError> {
        let Some(settings) = &self.settings.workflows else {
            return Ok(());
        };
        let workflows = Workflows::start(settings, self.workflow_context()).await?;
        self.metrics.watch_workflows(workflows.activity.clone());
        self.workflows = Some(workflows);
        Ok(())
    }

    /// Loads the configuration, and starts to watch its files.
    async fn load_configuration(&mut self, origin: &ConfigOrigin) -> Result<(), ServeError> {
        let target = ConfigTarget {
            limiter: self.limiter.clone(),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            health_needs_domain: self.settings.health_needs_domain,
            same_domain: self.settings.files.same_domain,
            notify: self.notify.clone(),
            status: self.load_status.clone(),
        };
        let (sender, loaded) = oneshot::channel();
        match origin {
            ConfigOrigin::BuiltIn(built_in) => {
                target.load_built_in(built_in);
                return Ok(());
            }
            ConfigOrigin::Files(files) => {
                self.loader = Some(ConfigLoader::start(
                    files.clone(),
                    target,
                    sender,
                    &self.supervisor,
                )?);
            }
            ConfigOrigin::Server(xds) => {
                Subscription::new(xds.as_ref().clone(), target, sender).start(&self.supervisor)?
            }
        }
        if self.settings.files.first_load == FirstLoad::BeforePorts {
            // An error means that the thread has ended, which the supervisor reports.
            let _ = loaded.await;
        }
        Ok(())
    }
}
