//! Servers on a cluster behind delay proxies, one for each parallelism of groups.

use std::time::Duration;

use tidegate_pipeline::Address;

use crate::machine::{Cores, DelayedCluster, Server};
use crate::scenario::RunOptions;

const PRIMARIES: usize = 3;
/// The setting and its name: one node at a time, as in the reference, and all in parallel.
const PARALLELISM: [(&str, &str); 2] = [("1", "serial"), ("0", "parallel")];

/// Servers that keep their counters in one cluster.
pub(super) struct DelayedServers {
    pub(super) cluster: DelayedCluster,
    pub(super) servers: Vec<(&'static str, Server)>,
}

impl DelayedServers {
    pub(super) async fn start(options: &RunOptions, one_way: Duration) -> anyhow::Result<Self> {
        let cluster = DelayedCluster::start(PRIMARIES, Cores::Anywhere).await?;
        cluster.proxy.set_delay(one_way);
        let addresses: Vec<String> = cluster.addresses().iter().map(Address::to_string).collect();
        let program = options.program()?;
        let mut servers = Vec::new();
        for (setting, name) in PARALLELISM {
            let environment = [
                ("REDIS_TYPE", "cluster".to_owned()),
                ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
                ("REDIS_URL", addresses.join(",")),
                ("REDIS_CLUSTER_PIPELINE_PARALLELISM", setting.to_owned()),
            ];
            servers.push((name, Server::start(&program, &environment).await?));
        }
        Ok(Self { cluster, servers })
    }
}
