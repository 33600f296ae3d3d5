//! A Redis Cluster behind delay proxies, for measurements.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tidegate_pipeline::test_util::RedisCluster;
use tidegate_pipeline::{Address, Config};
use tokio::time::sleep;

use super::pin::{self, Core};
use super::{Process, tcp_address};
use crate::delay::DelayProxy;

/// Maximum wait until all nodes know the new ports of the others.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Primaries, each behind a proxy. The cluster announces the proxies, so clients connect to nothing
/// else.
pub(crate) struct DelayedCluster {
    redis: RedisCluster,
    pub(crate) proxy: DelayProxy,
    /// A hash tag for each primary that it owns.
    pub(crate) tags: Vec<String>,
}

/// Placement of processes on cores.
#[derive(PartialEq, Eq)]
pub(crate) enum Cores {
    /// Servers and proxies on one core, the load on the other.
    Separate,
    /// The kernel's choice, as for a service that is part of the measurement.
    Anywhere,
}

impl DelayedCluster {
    /// Starts a cluster without replicas and its proxies, without delay.
    pub(crate) async fn start(primaries: usize, cores: Cores) -> Result<Self> {
        let cluster = RedisCluster::start(primaries, 0).await;
        let tags = tags(&cluster);
        let servers: Vec<SocketAddr> = cluster
            .servers()
            .iter()
            .map(|server| ([127, 0, 0, 1], server.port()).into())
            .collect();
        let proxy = if cores == Cores::Separate {
            for server in cluster.servers() {
                pin::process(server.pid(), Core::Servers)?;
            }
            pin::proxies(&servers, Duration::ZERO)?
        } else {
            DelayProxy::start(&servers, Duration::ZERO)?
        };
        let far = Self {
            redis: cluster,
            proxy,
            tags,
        };
        let ports = far.proxy.addresses.iter().map(SocketAddr::port);
        far.announce(ports.collect()).await?;
        Ok(far)
    }

    /// Announces the addresses of the nodes to new clients.
    pub(crate) async fn bypass_proxies(&self) -> Result<()> {
        let ports = self.redis.servers().iter().map(|server| server.port());
        self.announce(ports.collect()).await
    }

    async fn announce(&self, ports: Vec<u16>) -> Result<()> {
        let servers = self.redis.servers();
        for (server, port) in servers.iter().zip(&ports) {
            let answer = server.raw(&format!("CONFIG SET cluster-announce-port {port}"));
            ensure!(
                answer.starts_with("+OK"),
                "the cluster cannot announce another port: {answer}"
            );
        }
        let start = Instant::now();
        for server in servers {
            while !knows(&server.raw("CLUSTER NODES"), &ports) {
                ensure!(
                    start.elapsed() < SETTLE_TIMEOUT,
                    "the nodes did not learn the announced ports"
                );
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Returns the addresses that a client connects to first: the proxies.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.proxy
            .addresses
            .iter()
            .copied()
            .map(tcp_address)
            .collect()
    }

    /// Returns settings of a client of the cluster, with default bounds.
    pub(crate) fn config(&self) -> Config {
        Config::cluster(self.addresses())
    }

    /// Returns the processor time of all nodes.
    pub(crate) fn redis_time(&self) -> Result<Duration> {
        let times: Result<Vec<Duration>> = self
            .redis
            .servers()
            .iter()
            .map(|server| Process(server.pid()).main_thread_time())
            .collect();
        Ok(times.context("a node is gone")?.iter().sum())
    }

    /// Fails if the queue of a proxy was ever full: then more than the delay was measured.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(self.proxy.full() == 0, "a proxy's queue was full");
        Ok(())
    }
}

/// Returns a hash tag for each primary. Must be called before the cluster announces other ports.
fn tags(cluster: &RedisCluster) -> Vec<String> {
    let mut tags: Vec<Option<String>> = vec![None; cluster.servers().len()];
    let mut candidates = (0..).map(|number: u32| format!("{{t{number}}}"));
    while tags.contains(&None) {
        let tag = candidates
            .next()
            .expect("the numbers do not end before every node owns one");
        let owner = cluster.owner(&tag);
        tags[owner].get_or_insert(tag);
    }
    tags.into_iter().flatten().collect()
}

/// Returns whether a node's view of the cluster has every port.
fn knows(nodes: &str, ports: &[u16]) -> bool {
    ports
        .iter()
        .all(|port| nodes.contains(&format!(":{port}@")))
}
