//! Output of `tidegate store info`.

use serde_json::{Value, json};
use tidegate_cli::{Cell, Failure, Screen, Table, counted};
use tidegate_workflow::{Durability, Member, NodeDurability, Space, Status, Store as Opened};

use super::{OpenStore, migrate};

/// A store, and the servers that use it.
pub(super) struct Info {
    schema: u32,
    /// Number of workflows in an earlier format.
    earlier: u64,
    partitions: u16,
    workflows: Vec<(Status, u64)>,
    queues: usize,
    ready: u64,
    /// Size of a SQLite file; none in Redis.
    space: Option<Space>,
    durability: Durability,
    /// Time in microseconds by which the clock of this machine is ahead of the store's.
    skew: Option<i64>,
    servers: Vec<Member>,
}

impl Info {
    pub(super) async fn read(here: &OpenStore) -> Result<Self, Failure> {
        let engine = &here.engine;
        let store = engine.store();
        let workflows = here.counts().await?;
        let queues = here.complete(engine.queue_states().await)?;
        let earlier = migrate::earlier(here).await?;
        let space = match store {
            Opened::Sqlite(store) => {
                Some(store.space().await.map_err(|error| here.refused(&error))?)
            }
            _ => None,
        };
        let durability = store
            .durability()
            .await
            .map_err(|error| here.refused(&error))?;
        let servers = engine
            .read_servers(here.clock.now())
            .await
            .map_err(|error| here.refused(&error))?;
        Ok(Self {
            schema: store.format().schema(),
            earlier,
            partitions: store.partitions(),
            workflows,
            queues: queues.len(),
            ready: queues.iter().map(|queue| queue.ready).sum(),
            space,
            durability,
            skew: here.clock.skew(),
            servers,
        })
    }

    pub(super) fn json(&self, here: &OpenStore) -> Value {
        let workflows: serde_json::Map<_, _> = self
            .workflows
            .iter()
            .map(|(status, number)| (status.word().to_owned(), (*number).into()))
            .collect();
        json!({
            "kind": here.kind(), "store": here.shown, "schema": self.schema, "earlier_workflows": self.earlier,
            "partitions": self.partitions,
            "file": self.space.map(space_json),
            "workflows": workflows, "queues": self.queues, "ready_jobs": self.ready,
            "clock_skew_ms": self.skew.map(|micros| micros / 1_000),
            "nodes": self.durability.nodes.iter().map(node_json).collect::<Vec<_>>(),
            "risks": self.durability.risks(here.replicas),
            "servers": self.servers.iter().map(server_json).collect::<Vec<_>>(),
        })
    }

    /// Text with a line for each fact, and a table of the workflows.
    pub(super) fn text(&self, here: &OpenStore, screen: &Screen) -> String {
        let mut text = String::new();
        let mut line = |name: &str, fact: String| text += &format!("{name:<11} {fact}\n");
        line("store", here.shown.clone());
        line("kind", here.kind().to_owned());
        line("schema", schema_line(self.schema, self.earlier));
        line("partitions", self.partitions.to_string());
        line("queues", self.queues.to_string());
        line("ready jobs", self.ready.to_string());
        if let Some(space) = self.space {
            line("file", space_line(space));
        }
        for node in &self.durability.nodes {
            line("redis", node.to_string());
        }
        for server in &self.servers {
            line("server", server_line(server));
        }
        if let Some(skew) = self.skew {
            line(
                "clock",
                format!("{:.3} s ahead of redis", skew as f64 / 1e6),
            );
        }
        for risk in self.durability.risks(here.replicas) {
            line("risk", risk.to_string());
        }
        let mut table = Table::new(&["STATUS", "WORKFLOWS"]);
        for (status, number) in &self.workflows {
            table.row(vec![
                Cell::of_state(status.word(), status.word()),
                number.to_string().into(),
            ]);
        }
        format!("{text}\n{}", table.text(screen))
    }
}

fn space_json(space: Space) -> serde_json::Value {
    json!({ "bytes": space.bytes, "free_bytes": space.free, "gives_back": space.gives_back })
}

/// Size of a SQLite file, for people.
fn space_line(space: Space) -> String {
    let Space { bytes, free, .. } = space;
    let advice = if space.gives_back {
        ""
    } else {
        "; an earlier version made it, so it never becomes smaller: see `tidegate store compact`"
    };
    format!("{bytes} bytes, of which {free} are free{advice}")
}

fn node_json(node: &NodeDurability) -> serde_json::Value {
    json!({
        "version": node.version, "partitions": node.partitions, "persistence": node.persistence.to_string(),
        "replicas": node.replicas, "maxmemory_policy": node.policy,
    })
}

/// The schema version, and the number of workflows in an earlier one, for people.
fn schema_line(schema: u32, earlier: u64) -> String {
    match earlier {
        0 => schema.to_string(),
        _ => format!(
            "{schema}; {} in an earlier format, see `tidegate store migrate`",
            counted(earlier, "workflow")
        ),
    }
}

fn server_json(server: &Member) -> serde_json::Value {
    json!({
        "id": server.id.to_string(), "version": server.about.version, "address": server.about.address,
        "home_partitions": server.partitions.iter().map(|partition| partition.0).collect::<Vec<_>>(),
    })
}

/// A server that uses the store, for people.
fn server_line(server: &Member) -> String {
    let Member {
        id,
        about,
        partitions: homes,
        ..
    } = server;
    let homes: Vec<String> = homes
        .iter()
        .map(|partition| partition.0.to_string())
        .collect();
    let homes = if homes.is_empty() {
        "no partition".to_owned()
    } else {
        format!("partitions {}", homes.join(", "))
    };
    format!(
        "{id} at {}, version {}, home of {homes}",
        about.address, about.version
    )
}
