//! How Redis nodes persist their data, and which acknowledged writes could be lost. Many hosted
//! services forbid CONFIG; INFO reports most of it.

use std::fmt;
use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Client, Outcome};

use super::keys::{Keys, Set};
use super::read::reply::{self, answer};
use super::{RedisOptions, RedisStore, key_arg, text_arg};
use crate::codec::StoreError;
use crate::model::Partition;

/// A command with its arguments.
type Command = (&'static str, &'static [&'static str]);

/// The commands whose replies have the fields of [`NodeDurability`].
const DURABILITY_COMMANDS: [Command; 5] = [
    ("INFO", &["persistence"]),
    ("INFO", &["replication"]),
    ("INFO", &["memory"]),
    ("CONFIG", &["GET", "appendfsync"]),
    ("CONFIG", &["GET", "save"]),
];

/// The eviction policy that Redis should have: no key is evicted when its memory is full.
const NO_EVICTION: &str = "noeviction";

/// Whether a node has the risk, given the number of replicas that a write waits for, and its cause.
type Risk = (fn(&NodeDurability, u16) -> bool, &'static str);

const RISKS: [Risk; 6] = [
    (
        |node, _| node.persistence == Persistence::Nothing,
        "redis keeps nothing on disk: all workflows are lost when it restarts. Set appendonly yes",
    ),
    (
        |node, _| {
            matches!(
                node.persistence,
                Persistence::Snapshots | Persistence::NoLog
            )
        },
        "redis has no log: a crash loses what was acknowledged since its last snapshot. Set appendonly yes",
    ),
    (
        |node, _| node.persistence == Persistence::LogUnsynced,
        "redis does not sync its log: a loss of power loses what was acknowledged in the last half minute or so. Set \
         appendfsync everysec, or always",
    ),
    (
        |node, _| {
            node.policy
                .as_deref()
                .is_some_and(|policy| policy != NO_EVICTION)
        },
        "redis removes keys when its memory is full, and workflows with them. Set maxmemory-policy noeviction",
    ),
    (
        |node, replicas| replicas == 0 && node.replicas > 0,
        "redis has replicas, and a failover loses what had not reached them. Set TIDEGATE_ACKNOWLEDGED_BY=replicas:1",
    ),
    (
        |node, replicas| node.replicas < u64::from(replicas),
        "redis has fewer replicas than TIDEGATE_ACKNOWLEDGED_BY asks for: writes are answered with 503 until they are connected",
    ),
];

/// How the nodes that have partitions persist their data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Durability {
    /// The nodes, ordered by the first of their partitions.
    pub nodes: Vec<NodeDurability>,
}

/// How one node persists its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDurability {
    /// The version of Redis.
    pub version: String,
    /// Number of partitions of the node.
    pub partitions: usize,
    /// How the node writes to its disk.
    pub persistence: Persistence,
    /// Number of replicas that are connected.
    pub replicas: u64,
    /// The eviction policy when its memory is full. `None` if the node does not report it.
    pub policy: Option<String>,
}

/// How a node writes to its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// An append-only log, synced after each write.
    LogAlways,
    /// A log, synced every second.
    LogEverySecond,
    /// A log, synced when the operating system decides.
    LogUnsynced,
    /// A log whose sync interval is not reported.
    Log,
    /// Snapshots from time to time.
    Snapshots,
    /// Neither log nor snapshots.
    Nothing,
    /// No log; whether there are snapshots is not reported.
    NoLog,
}

impl fmt::Display for Persistence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::LogAlways => "log, appendfsync always",
            Self::LogEverySecond => "log, appendfsync everysec",
            Self::LogUnsynced => "log, appendfsync no",
            Self::Log => "log",
            Self::Snapshots => "snapshots only",
            Self::Nothing => "none",
            Self::NoLog => "no log",
        })
    }
}

impl fmt::Display for NodeDurability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            version,
            partitions,
            persistence,
            replicas,
            policy,
        } = self;
        let policy = policy.as_deref().unwrap_or("unknown");
        write!(
            formatter,
            "version {version}, {partitions} partitions, persistence: {persistence}, {replicas} replicas, maxmemory-policy {policy}"
        )
    }
}

impl Durability {
    /// Causes by which acknowledged writes could be lost, one line each. `replicas` is the number
    /// of replicas that a write waits for.
    #[must_use]
    pub fn risks(&self, replicas: u16) -> Vec<String> {
        let all = self.nodes.len();
        let cause = |(endangers, cause): &Risk| {
            let nodes = self.nodes.iter();
            match nodes.filter(|node| endangers(node, replicas)).count() {
                0 => None,
                _ if all == 1 => Some((*cause).to_owned()),
                nodes => Some(format!("{nodes} of {all} nodes: {cause}")),
            }
        };
        RISKS.iter().filter_map(cause).collect()
    }
}

/// Values of an INFO or CONFIG GET reply, by name.
fn fields(outcome: &Outcome) -> Vec<(String, String)> {
    let Ok(reply) = answer(outcome) else {
        return Vec::new();
    };
    if let Ok(entries) = reply::entries(reply) {
        return entries;
    }
    let text = reply::bytes(reply)
        .ok()
        .flatten()
        .map(|text| String::from_utf8_lossy(text).into_owned());
    let text = text.unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn value<'f>(fields: &'f [(String, String)], name: &str) -> Option<&'f str> {
    fields
        .iter()
        .find(|(other, _)| other == name)
        .map(|(_, value)| value.as_str())
}

fn persistence(fields: &[(String, String)]) -> Persistence {
    match (
        value(fields, "aof_enabled"),
        value(fields, "appendfsync"),
        value(fields, "save"),
    ) {
        (Some("1"), Some("always"), _) => Persistence::LogAlways,
        (Some("1"), Some("everysec"), _) => Persistence::LogEverySecond,
        (Some("1"), Some("no"), _) => Persistence::LogUnsynced,
        (Some("1"), ..) => Persistence::Log,
        (_, _, Some("")) => Persistence::Nothing,
        (_, _, Some(_)) => Persistence::Snapshots,
        _ => Persistence::NoLog,
    }
}

impl RedisStore {
    /// The durability of the nodes for a store with these options, even before the store is
    /// created. It writes nothing.
    ///
    /// # Errors
    /// Never fails at the moment: a node that does not answer, or forbids the commands, is left
    /// out.
    pub async fn durability_at(
        client: &Client,
        options: &RedisOptions,
    ) -> Result<Durability, StoreError> {
        let keys = Keys::new(options.prefix.clone(), options.partitions);
        let nodes = Nodes {
            client,
            keys: &keys,
            timeout: options.timeout,
        };
        Ok(nodes.durability().await)
    }

    /// The durability of the nodes of this store, as [`RedisStore::durability_at`] describes.
    pub(crate) async fn durability(&self) -> Result<Durability, StoreError> {
        let nodes = Nodes {
            client: &self.client,
            keys: &self.keys,
            timeout: self.timeout,
        };
        Ok(nodes.durability().await)
    }
}

impl NodeDurability {
    fn from_fields(version: String, partitions: usize, fields: &[(String, String)]) -> Self {
        Self {
            version,
            partitions,
            persistence: persistence(fields),
            replicas: value(fields, "connected_slaves")
                .and_then(|number| number.parse().ok())
                .unwrap_or_default(),
            policy: value(fields, "maxmemory_policy").map(str::to_owned),
        }
    }
}

/// The nodes behind the partitions of a store.
struct Nodes<'a> {
    client: &'a Client,
    keys: &'a Keys,
    timeout: Duration,
}

impl Nodes<'_> {
    /// Two round trips. A node that forbids the commands is left out.
    async fn durability(&self) -> Durability {
        let nodes = self.find().await;
        let firsts: Vec<Partition> = nodes.iter().map(|(.., partitions)| partitions[0]).collect();
        let replies = self.query(&firsts, &DURABILITY_COMMANDS).await;
        let node = |((_, version, partitions), fields): ((_, _, Vec<_>), Vec<_>)| {
            NodeDurability::from_fields(version, partitions.len(), &fields)
        };
        Durability {
            nodes: nodes.into_iter().zip(replies).map(node).collect(),
        }
    }

    /// The id, the version and the partitions of each node.
    async fn find(&self) -> Vec<(String, String, Vec<Partition>)> {
        let mut nodes: Vec<(String, String, Vec<Partition>)> = Vec::new();
        let all: Vec<Partition> = self.keys.all().collect();
        let servers = self.query(&all, &[("INFO", &["server"])]).await;
        for (partition, fields) in all.into_iter().zip(servers) {
            let id = value(&fields, "run_id");
            let (Some(id), Some(version)) = (id, value(&fields, "redis_version")) else {
                continue;
            };
            match nodes.iter_mut().find(|(other, ..)| other == id) {
                Some((.., partitions)) => partitions.push(partition),
                None => nodes.push((id.to_owned(), version.to_owned(), vec![partition])),
            }
        }
        nodes
    }

    /// The fields in the replies of the nodes of the given partitions to these commands.
    async fn query(
        &self,
        partitions: &[Partition],
        commands: &[Command],
    ) -> Vec<Vec<(String, String)>> {
        let mut batch = Batch::new();
        for &partition in partitions {
            // The key only selects the node.
            let key = self.keys.set(partition, Set::Ready);
            let mut unit = batch.unit().repeatable("EXISTS", &[key_arg(&key)]);
            for (name, args) in commands {
                let args: Vec<Arg<'_>> = args.iter().map(|arg| text_arg(arg)).collect();
                unit = unit.repeatable(name, &args);
            }
        }
        let deadline = Instant::now() + self.timeout;
        let outcomes = self.client.send(batch, deadline).await;
        let each = outcomes.chunks(1 + commands.len());
        each.map(|replies| replies[1..].iter().flat_map(fields).collect())
            .collect()
    }
}
