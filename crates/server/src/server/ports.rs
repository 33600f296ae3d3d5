//! Opens the ports, and starts the tasks that run while they are open.

use std::sync::Arc;

use axum::Router;
use tidegate_ratelimit::OverrideStore;
use tokio::net::TcpListener;
use tracing::warn;

use super::Server;
use crate::error::ServeError;
use crate::net::bounds::{Bounds, Budget, Files, Most, Shares};
use crate::net::cores;
use crate::net::http;
use crate::net::listen::{Listeners, Sockets};
use crate::net::tls::{PortTlsAcceptor, PortTlsAcceptors};
use crate::rls::{json, memory, redis};
use crate::settings::Settings;
use crate::telemetry::debug;
use crate::telemetry::purge_allocator::purge_allocator;
use crate::telemetry::statsd;
use crate::workflows::port::PendingPort;

/// Shared budget of a port in bytes for unfinished requests and unread responses, beyond the free
/// bytes of each connection: sixteen of the largest messages. Typical ones arrive in one piece, and
/// use none of it.
const UNFINISHED: usize = 64 * 1024 * 1024;

impl Server {
    /// Starts all cores, and opens all ports.
    pub(super) async fn open(
        &mut self,
        sockets: Sockets,
        gates: PortTlsAcceptors,
    ) -> Result<(), ServeError> {
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
        let calls = Bounds::new("gRPC", shares.grpc, budget);
        let requests = bounds("HTTP", shares.http);
        self.ports = vec![calls.clone(), requests.clone()];
        self.metrics.watch_port(calls.clone());
        self.supervisor.task(
            "accept-grpc",
            cores
                .clone()
                .accept(grpc, gates.grpc, calls, self.supervisor.clone()),
        );
        let router = json::router(cores, self.health.clone());
        self.serve("accept-http", http, router, requests);
        self.open_pages(debug, prometheus, shares.pages);
        if let Some(settings) = &self.settings.metrics.statsd {
            statsd::start(settings, &self.metrics, &self.supervisor)?;
        }
        self.look_after_store();
        Ok(())
    }

    /// Opens the ports for operators.
    fn open_pages(
        &self,
        debug: Option<TcpListener>,
        prometheus: Option<TcpListener>,
        connections: Most,
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

    fn serve(&self, part: &'static str, listener: TcpListener, router: Router, bounds: Bounds) {
        self.metrics.watch_port(bounds.clone());
        self.supervisor.task(
            part,
            http::serve(listener, router, bounds, self.supervisor.clone()),
        );
    }

    /// Starts the workflows, if they are enabled, as soon as no other process uses their port.
    fn await_port_of_api(&mut self, gate: Option<PortTlsAcceptor>, connections: Most) {
        // Another process may have taken the port since it was bound.
        let started = self.workflows.take();
        if self.settings.workflows.is_some() {
            let late = PendingPort {
                settings: self.settings.clone(),
                context: self.context_of_workflows(),
                started,
                gate,
                connections,
            };
            self.supervisor.task("api-port", late.run());
        }
    }

    /// Divides the allowed number of open files among the ports. Must be called after the cores
    /// have opened their files.
    fn shares(&self) -> Result<Shares, ServeError> {
        let Settings {
            redis,
            workflows,
            cores,
            max_connections,
            max_connections_given,
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

    /// Starts the tasks that maintain the counter store while the server runs.
    fn look_after_store(&self) {
        let supervisor = &self.supervisor;
        supervisor.task("give-back", purge_allocator(supervisor.clone()));
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
}

/// Bounds of a port with its own memory budget.
fn bounds(port: &'static str, connections: Most) -> Bounds {
    Bounds::new(port, connections, Budget::new(UNFINISHED))
}
