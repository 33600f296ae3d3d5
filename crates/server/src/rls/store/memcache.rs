//! Counters in memcached: clients for each core, the list of servers, and logs of their failures.

mod message;
mod resolver;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_memcache::{Client, Config, Servers, Stats};
use tidegate_ratelimit::{MemcacheStore, Store};
use tokio::time::{interval, sleep, timeout};
use tracing::{info, warn};

use crate::base::sync::lock;
use crate::settings::{Memcache, MemcacheSource, Srv};
use crate::supervise::Supervisor;
use crate::supervise::error::ServeError;
use resolver::Resolver;

/// Time that pending charges have when the server ends. A client gives up its servers in half of
/// that.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which failures are logged.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The memcached servers of the counters, and their clients. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Memcached {
    config: Config,
    servers: Servers,
    srv: Option<Srv>,
    clients: Arc<Mutex<Vec<Client>>>,
}

impl Memcached {
    /// Finds the servers. They need not answer, because memcached is optional for a start.
    ///
    /// # Errors
    /// DNS does not return the servers.
    pub(crate) async fn find(settings: &Memcache) -> Result<Self, ServeError> {
        let (list, srv) = match &settings.source {
            MemcacheSource::List(list) => (list.clone(), None),
            MemcacheSource::Srv(srv) => {
                let found = Resolver::from_settings(srv).servers(&srv.name).await;
                let list = found.map_err(|reason| ServeError::Srv {
                    name: srv.name.clone(),
                    reason,
                })?;
                info!(
                    name = srv.name,
                    servers = list.len(),
                    "found the servers of memcached"
                );
                (list, Some(srv.clone()))
            }
        };
        let mut config = Config::default();
        config.tls = settings.tls.clone();
        let servers = Servers::new(list);
        Ok(Self {
            config,
            servers,
            srv,
            clients: Arc::default(),
        })
    }

    /// Creates a store for one core, and its client.
    pub(crate) fn store(&self) -> (Store, Client) {
        let client = Client::new(self.config.clone(), self.servers.clone());
        lock(&self.clients).push(client.clone());
        (Store::Memcache(MemcacheStore::new(client.clone())), client)
    }

    /// Maximum of connections of each core.
    pub(crate) fn connections(&self) -> usize {
        self.servers.list().len()
    }

    /// Waits until all charges are in memcached, for [`FLUSH_TIMEOUT`] at most.
    pub(crate) async fn flush(&self) {
        let flushed = async {
            for client in self.clients() {
                client.flush().await;
            }
        };
        if timeout(FLUSH_TIMEOUT, flushed).await.is_err() {
            warn!("memcached does not take the last charges; they are lost");
        }
    }

    /// Starts the tasks that memcached needs while the server runs.
    pub(crate) fn start_tasks(&self, supervisor: &Supervisor) {
        supervisor.task_until_drain("memcache", self.clone().log_failures());
        if let Some(srv) = self.srv.clone()
            && let Some(refresh) = srv.refresh
        {
            let work = refresh_servers(srv, refresh, self.servers.clone());
            supervisor.task_until_drain("memcache-servers", work);
        }
    }

    fn clients(&self) -> Vec<Client> {
        lock(&self.clients).clone()
    }

    /// Logs failures once in [`WARNING_INTERVAL`].
    async fn log_failures(self) {
        let mut ticks = interval(WARNING_INTERVAL);
        let mut logged = Stats::default();
        loop {
            ticks.tick().await;
            let now: Stats = self.clients().iter().map(Client::stats).sum();
            let since = |value: fn(&Stats) -> u64| value(&now) - value(&logged);
            let reads = since(|stats| stats.failed_reads);
            let charges = since(|stats| stats.failed_changes);
            let dropped = since(|stats| stats.dropped_changes);
            let foreign = since(|stats| stats.foreign_values);
            if reads + charges > 0 {
                warn!(
                    reads,
                    charges,
                    dropped,
                    "memcached did not count: what cannot be read counts as zero, so calls pass"
                );
            }
            if foreign > 0 {
                warn!(
                    foreign,
                    "counters in memcached hold something else than a number, which counts as zero"
                );
            }
            logged = now;
        }
    }
}

/// Repeats the look-up of the servers. A failed look-up changes nothing.
async fn refresh_servers(srv: Srv, refresh: Duration, servers: Servers) {
    loop {
        sleep(refresh).await;
        // /etc/resolv.conf is read again, because the system may change its DNS servers.
        let resolver = Resolver::from_settings(&srv);
        match resolver.servers(&srv.name).await {
            Ok(list) => {
                let number = list.len();
                if servers.replace(list) {
                    info!(
                        name = srv.name,
                        servers = number,
                        "the servers of memcached changed, so counters move"
                    );
                }
            }
            Err(reason) => warn!(
                name = srv.name,
                reason, "failed to refresh memcache hosts; the servers stay"
            ),
        }
    }
}
