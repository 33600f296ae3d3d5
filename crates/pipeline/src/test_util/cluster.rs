//! A Redis Cluster for tests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{RedisServer, START_TIMEOUT};
use crate::wire::Slot;
use crate::{Address, Config};

/// A separate Redis Cluster on loopback: primaries and replicas.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
    primaries: usize,
}

impl RedisCluster {
    /// Starts `primaries` primaries with `replicas` replicas each, and waits until every slot is
    /// served and every replica is in step. A node that is silent for a second counts as failed.
    ///
    /// # Panics
    /// Panics as [`RedisServer::start`] does, and if the nodes do not form a cluster.
    pub async fn start(primaries: usize, replicas: usize) -> Self {
        Self::start_program("redis-server".into(), primaries, replicas).await
    }

    /// Starts another program that takes redis-server's arguments, see [`RedisCluster::start`].
    ///
    /// # Panics
    /// Panics as [`RedisCluster::start`] does.
    pub async fn start_program(program: PathBuf, primaries: usize, replicas: usize) -> Self {
        let mut servers = Vec::new();
        for _ in 0..primaries * (1 + replicas) {
            let arguments = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
            servers.push(RedisServer::start_program(program.clone(), &arguments).await);
        }
        let cluster = Self { servers, primaries };
        tokio::task::spawn_blocking(move || {
            cluster.form(replicas);
            cluster
        })
        .await
        .expect("the nodes form a cluster")
    }

    /// Addresses of all nodes.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.servers.iter().map(RedisServer::address).collect()
    }

    /// Returns settings with the first node only.
    #[must_use]
    pub fn config(&self) -> Config {
        Config::cluster(vec![self.servers[0].address()])
    }

    /// Returns the nodes: first the initial primaries, then the replicas.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns one node, to kill it or start it again.
    #[must_use]
    pub fn server_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.servers[index]
    }

    /// The node id of a server.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    #[must_use]
    pub fn id(&self, index: usize) -> String {
        bulk(&self.servers[index].raw("CLUSTER MYID")).to_owned()
    }

    /// Returns the primary that owns the slot of `key`, as an index into [`RedisCluster::servers`],
    /// by the first node's view.
    ///
    /// # Panics
    /// Panics if no node owns it.
    #[must_use]
    pub fn owner(&self, key: &str) -> usize {
        let slot: u16 = Slot::for_key(key.as_bytes()).number();
        let nodes = self.servers[0].raw("CLUSTER NODES");
        let owns = |line: &&str| {
            line.split(' ')
                .skip(8)
                .filter(|range| !range.starts_with('['))
                .any(|range| {
                    let (first, last) = range
                        .trim()
                        .split_once('-')
                        .unwrap_or((range.trim(), range.trim()));
                    first.parse().is_ok_and(|first: u16| first <= slot)
                        && last.parse().is_ok_and(|last: u16| slot <= last)
                })
        };
        let line = nodes.lines().find(owns).expect("every slot has an owner");
        let port = line
            .split(['@', ' '])
            .nth(1)
            .and_then(|address| address.rsplit(':').next())
            .expect("a node has a port");
        self.servers
            .iter()
            .position(|server| server.port().to_string() == port)
            .expect("the owner is one of ours")
    }

    fn form(&self, replicas: usize) {
        let first = self.servers[0].port();
        for (index, server) in self.servers.iter().enumerate() {
            if index < self.primaries {
                let share = 16_384_usize.div_ceil(self.primaries);
                let last = (16_384.min((index + 1) * share)) - 1;
                let _ = server.raw(&format!("CLUSTER ADDSLOTSRANGE {} {last}", index * share));
            }
            let _ = server.raw(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            let _ = server.raw(&format!("CLUSTER MEET 127.0.0.1 {first}"));
        }
        let all = self.servers.len();
        self.wait("every node knows every other", |server| {
            server
                .raw("CLUSTER INFO")
                .contains(&format!("cluster_known_nodes:{all}\r\n"))
        });
        for replica in self.primaries..all {
            let primary = self.id((replica - self.primaries) / replicas);
            self.wait("a replica takes its primary", |_| {
                self.servers[replica]
                    .raw(&format!("CLUSTER REPLICATE {primary}"))
                    .starts_with("+OK")
            });
        }
        self.wait("the cluster is up", |server| {
            server.raw("CLUSTER INFO").contains("cluster_state:ok")
        });
        self.wait("replicas are in step", |server| {
            let info = server.raw("INFO replication");
            info.contains("role:master") || info.contains("master_link_status:up")
        });
        // A view without all replicas would make a failover test unreliable.
        self.wait("every node knows all replicas", |server| {
            server.raw("CLUSTER NODES").matches("slave").count() == self.primaries * replicas
        });
    }

    fn wait(&self, what: &str, mut holds: impl FnMut(&RedisServer) -> bool) {
        let deadline = Instant::now() + START_TIMEOUT;
        for server in &self.servers {
            while !holds(server) {
                assert!(
                    Instant::now() < deadline,
                    "the cluster did not form: {what}"
                );
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
    }
}

/// The content of a bulk string reply.
fn bulk(reply: &str) -> &str {
    reply.split("\r\n").nth(1).unwrap_or_default()
}
