//! The server on a cluster behind delay proxies, in the two ways it can send a call's groups.

use std::path::Path;

use tidegate_pipeline::Address;

use crate::figures::Latency;
use crate::figures::Turns;
use crate::load::Load;
use crate::load::Shape;
use crate::load::{Distribution, Keys};
use crate::machine::FarCluster;
use crate::machine::Server;

/// Distinct keys of each descriptor: enough to meet every slot, few enough to stay in Redis's cache.
const KEYS: u32 = 1_000;

/// How the server sends the groups of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parallelism {
    /// One node after the other, the reference's default.
    Serial,
    /// All nodes at once.
    Full,
}

/// Load on one server.
#[derive(Clone, Copy)]
pub(crate) struct Callers {
    pub(crate) connections: u16,
    /// On each connection.
    pub(crate) streams: u16,
    /// Calls a second; `None` sends as soon as a stream is free.
    pub(crate) rate: Option<f64>,
    pub(crate) descriptors: u16,
}

impl Parallelism {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Full => "parallel",
        }
    }
}

/// Starts a server that keeps its counters in `cluster`.
pub(crate) async fn start(
    program: &Path,
    folder: &Path,
    cluster: &FarCluster,
    parallelism: Parallelism,
) -> anyhow::Result<Server> {
    let addresses: Vec<String> = cluster.addresses().iter().map(Address::to_string).collect();
    let setting = match parallelism {
        Parallelism::Serial => "1",
        Parallelism::Full => "0",
    };
    let environment = [
        ("REDIS_TYPE", "cluster".to_owned()),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("REDIS_URL", addresses.join(",")),
        ("REDIS_CLUSTER_PIPELINE_PARALLELISM", setting.to_owned()),
    ];
    Server::start(program, folder, &environment).await
}

/// Puts load on a server for one turn, and adds what it showed.
pub(crate) async fn turn(
    server: &Server,
    callers: Callers,
    turns: &Turns,
    latency: &mut Latency,
) -> anyhow::Result<()> {
    let load = Load {
        address: server.grpc(),
        connections: callers.connections,
        streams: callers.streams,
        shape: Shape {
            domain: "bench".into(),
            key: "key".into(),
            descriptors: callers.descriptors,
            hits: 0,
        },
        keys: Keys::new(Distribution::Uniform, KEYS, 0.0, 1),
        rate: callers.rate,
        requests: None,
        warmup: turns.warmup(),
        duration: turns.turn,
    };
    let measured = load.run(None).await?;
    latency.add(&measured.tally, measured.elapsed, measured.behind)
}
