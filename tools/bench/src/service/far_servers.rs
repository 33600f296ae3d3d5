//! Servers on a cluster behind delay proxies, one for each parallelism of groups.

use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;
use tidegate_pipeline::Address;

use crate::machine::{Cores, FarCluster, Server};
use crate::scenario::RunOptions;

const PRIMARIES: usize = 3;
/// The setting and its name: one node at a time, as in the reference, and all in parallel.
const PARALLELISM: [(&str, &str); 2] = [("1", "serial"), ("0", "parallel")];

/// Servers that keep their counters in one cluster.
pub(super) struct FarServers {
    pub(super) cluster: FarCluster,
    pub(super) servers: Vec<(&'static str, Server)>,
    _folder: TempDir,
}

impl FarServers {
    pub(super) async fn start(options: &RunOptions, one_way: Duration) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        let cluster = FarCluster::start(PRIMARIES, Cores::Anywhere).await?;
        cluster.proxy().set_delay(one_way);
        let addresses: Vec<String> = cluster.addresses().iter().map(Address::to_string).collect();
        let mut servers = Vec::new();
        for (setting, name) in PARALLELISM {
            let environment = [
                ("REDIS_TYPE", "cluster".to_owned()),
                ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
                ("REDIS_URL", addresses.join(",")),
                ("REDIS_CLUSTER_PIPELINE_PARALLELISM", setting.to_owned()),
            ];
            let server = Server::start(&options.program()?, folder.path(), &environment).await?;
            servers.push((name, server));
        }
        Ok(Self {
            cluster,
            servers,
            _folder: folder,
        })
    }
}
