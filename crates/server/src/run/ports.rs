//! Opens the ports, and starts the tasks that run while they are open.

use std::sync::Arc;

use axum::Router;
use tidegate_ratelimit::OverrideStore;
use tokio::net::TcpListener;
use tracing::warn;

use super::server::Server;
use crate::net::bounds::{ConnectionLimit, MemoryBudget, OpenFiles, PortBounds, PortLimits};
use crate::net::http;
use crate::net::listen::{Listeners, Sockets};
use crate::net::tls::{PortTlsAcceptor, PortTlsAcceptors};
use crate::rls::store::memcache::Memcached;
use crate::rls::store::{memory, redis};
use crate::rls::{cores, json};
use crate::settings::Settings;
use crate::supervise::error::ServeError;
use crate::telemetry::purge_allocator::purge_allocator;
use crate::telemetry::{debug, statsd};
use crate::workflows::port::PendingPort;

/// Shared budget of a port in bytes for unfinished requests and unread responses, beyond the free
/// bytes of each connection: sixteen of the largest messages. Typical ones arrive in one piece, and
/// use none of it.
const UNFINISHED_BYTES: usize = 64 * 1024 * 1024;

impl Server {
    /// Starts all cores, and opens all ports.
    pub(super) async fn open(
        &mut self,
        sockets: Sockets,
        acceptors: PortTlsAcceptors,
    ) -> Result<(), ServeError> {
        let Listeners {
            grpc,
            http,
            debug,
            prometheus,
            api,
        } = sockets.listen()?;
        let budget = Arc::new(MemoryBudget::new(UNFINISHED_BYTES));
        let cores = cores::start(
            self.settings.cores,
            &self.supervisor,
            self.core_services(&budget),
        )
        .await?;
        let shares = self.shares()?;
        match (&self.workflows, api) {
            (Some(workflows), Some(listener)) => {
                self.metrics
                    .watch_port(workflows.open(listener, acceptors.api, shares.api));
            }
            _ => self.wait_for_api_port(acceptors.api, shares.api),
        }
        let calls = PortBounds::new("gRPC", shares.grpc, budget);
        let requests = bounds("HTTP", shares.http);
        self.ports = vec![calls.clone(), requests.clone()];
        self.metrics.watch_port(calls.clone());
        let supervisor = self.supervisor.clone();
        let accept = cores
            .clone()
            .accept(grpc, acceptors.grpc, calls, supervisor);
        self.supervisor.task("accept-grpc", accept);
        let router = json::router(cores, self.health.clone());
        self.serve("accept-http", http, router, requests);
        self.open_pages(debug, prometheus, shares.pages);
        if let Some(settings) = &self.settings.metrics.statsd {
            statsd::start(settings, &self.metrics, &self.supervisor)?;
        }
        self.maintain_counter_store();
        Ok(())
    }

    /// Opens the ports for operators.
    fn open_pages(
        &self,
        debug: Option<TcpListener>,
        prometheus: Option<TcpListener>,
        connections: ConnectionLimit,
    ) {
        if let Some(listener) = debug {
            let router = debug::router(
                self.limiter.clone(),
                self.metrics.clone(),
                self.supervisor.drain.clone(),
            );
            self.serve(
                "accept-debug",
                listener,
                router,
                bounds("debug", connections),
            );
        }
        if let (Some(listener), Some((_, path))) = (prometheus, &self.settings.metrics.prometheus) {
            let router = debug::prometheus(self.metrics.clone(), path);
            let bounds = bounds("Prometheus", connections);
            self.serve("accept-prometheus", listener, router, bounds);
        }
    }

    fn serve(&self, part: &'static str, listener: TcpListener, router: Router, bounds: PortBounds) {
        self.metrics.watch_port(bounds.clone());
        self.supervisor.task(
            part,
            http::serve(listener, router, bounds, self.supervisor.clone()),
        );
    }

    /// Starts the workflows, if they are enabled, as soon as no other process uses their port.
    fn wait_for_api_port(
        &mut self,
        acceptor: Option<PortTlsAcceptor>,
        connections: ConnectionLimit,
    ) {
        // Another process may have taken the port since it was bound.
        let started = self.workflows.take();
        if self.settings.workflows.is_some() {
            let pending = PendingPort {
                settings: self.settings.clone(),
                context: self.workflow_context(),
                started,
                acceptor,
                connections,
            };
            self.supervisor.task("api-port", pending.run());
        }
    }

    /// Divides the allowed number of open files among the ports. Must be called after the cores
    /// have opened their files.
    fn shares(&self) -> Result<PortLimits, ServeError> {
        let Settings {
            max_connections,
            max_connections_given,
            ..
        } = &self.settings;
        let files = OpenFiles::count(self.max_open_files, self.max_store_connections());
        if files.allowed < files.min_allowed() {
            return Err(ServeError::Files {
                allowed: files.allowed,
                least: files.min_allowed(),
            });
        }
        let shares = PortLimits::from_open_files(files, *max_connections);
        if let Some(warning) = shares.warning(files, *max_connections, *max_connections_given) {
            warn!("{warning}");
        }
        Ok(shares)
    }

    /// Maximum of connections to the stores of counters and workflows.
    fn max_store_connections(&self) -> usize {
        let Settings {
            redis,
            workflows,
            cores,
            ..
        } = &self.settings;
        // Workflows have their own connections, on the same number of threads.
        let workflows = workflows
            .iter()
            .filter(|_| self.workflows.is_some())
            .filter_map(|own| own.redis.as_ref());
        let servers = redis
            .iter()
            .flat_map(|redis| std::iter::once(&redis.main).chain(&redis.per_second))
            .chain(workflows);
        let redis: usize = servers.map(|server| server.config.max_connections).sum();
        let memcached = self.memcached.as_ref().map_or(0, Memcached::connections);
        (redis + memcached) * cores
    }

    /// Starts the tasks that maintain the counter store while the server runs.
    fn maintain_counter_store(&self) {
        let supervisor = &self.supervisor;
        supervisor.task("give-back", purge_allocator(supervisor.clone()));
        if let OverrideStore::Redis(_) = self.overrides.store {
            supervisor.task_until_drain("overrides", self.overrides.clone().follow());
        }
        if let Some(memcached) = &self.memcached {
            return memcached.start_tasks(supervisor);
        }
        match (&self.clients, &self.settings.redis) {
            (Some(clients), _) => {
                let work = redis::watch_health(clients.clone(), self.health.clone());
                supervisor.task_until_drain("redis-health", work);
            }
            (None, None) => {
                supervisor.task_until_drain("purge", memory::purge(self.memory.clone()));
            }
            (None, Some(_)) => {}
        }
    }
}

/// Bounds of a port with its own memory budget.
fn bounds(port: &'static str, connections: ConnectionLimit) -> PortBounds {
    PortBounds::new(port, connections, MemoryBudget::new(UNFINISHED_BYTES))
}
