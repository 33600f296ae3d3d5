//! Output of `tidegate store info`.

use serde_json::{Value, json};
use tidegate_cli::{Cell, CommandResult, Screen, Table, counted};
use tidegate_workflow::{Durability, FileSpace, Member, NodeDurability, Status, Store as Opened};

use crate::commands::migrate;
use crate::commands::open_store::OpenStore;

/// A store, and the servers that use it.
pub(super) struct StoreInfo {
    schema: u32,
    /// Number of workflows in an earlier format.
    earlier: u64,
    partitions: u16,
    workflows: Vec<(Status, u64)>,
    queues: usize,
    ready: u64,
    /// Size of a SQLite file; none in Redis.
    space: Option<FileSpace>,
    durability: Durability,
    /// Time in microseconds by which the clock of this machine is ahead of the store's.
    skew: Option<i64>,
    servers: Vec<Member>,
}

impl StoreInfo {
    pub(super) async fn read(open_store: &OpenStore) -> CommandResult<Self> {
        let engine = &open_store.engine;
        let store = engine.store();
        let workflows = open_store.counts().await?;
        let queues = open_store.require_complete(engine.queue_states().await)?;
        let earlier = migrate::count_earlier(open_store).await?;
        let space = match store {
            Opened::Sqlite(store) => Some(open_store.checked(store.space().await)?),
            _ => None,
        };
        let durability = open_store.checked(store.durability().await)?;
        let servers = open_store.members().await?;
        Ok(Self {
            schema: store.format().schema(),
            earlier,
            partitions: store.partitions(),
            workflows,
            queues: queues.len(),
            ready: queues.iter().map(|queue| queue.ready).sum(),
            space,
            durability,
            skew: open_store.clock.skew(),
            servers,
        })
    }

    pub(super) fn json(&self, open_store: &OpenStore) -> Value {
        let workflows: serde_json::Map<_, _> = self
            .workflows
            .iter()
            .map(|(status, number)| (status.word().to_owned(), (*number).into()))
            .collect();
        json!({
            "kind": open_store.kind(), "store": open_store.location, "schema": self.schema, "earlier_workflows": self.earlier,
            "partitions": self.partitions,
            "file": self.space.map(space_json),
            "workflows": workflows, "queues": self.queues, "ready_jobs": self.ready,
            "clock_skew_ms": self.skew.map(|micros| micros / 1_000),
            "nodes": self.durability.nodes.iter().map(node_json).collect::<Vec<_>>(),
            "risks": self.durability.risks(open_store.replicas),
            "servers": self.servers.iter().map(server_json).collect::<Vec<_>>(),
        })
    }

    /// Text with a line for each fact, and a table of the workflows.
    pub(super) fn text(&self, open_store: &OpenStore, screen: &Screen) -> String {
        let mut text = String::new();
        let mut line = |name: &str, fact: String| text += &format!("{name:<11} {fact}\n");
        line("store", open_store.location.clone());
        line("kind", open_store.kind().to_owned());
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
            let seconds = skew as f64 / 1e6;
            line("clock", format!("{seconds:.3} s ahead of redis"));
        }
        for risk in self.durability.risks(open_store.replicas) {
            line("risk", risk.to_string());
        }
        format!("{text}\n{}", self.workflows_table().text(screen))
    }

    fn workflows_table(&self) -> Table {
        let mut table = Table::new(&["STATUS", "WORKFLOWS"]);
        for (status, number) in &self.workflows {
            table.add_row(vec![
                Cell::of_state(status.word(), status.word()),
                number.to_string().into(),
            ]);
        }
        table
    }
}

fn space_json(space: FileSpace) -> serde_json::Value {
    json!({ "bytes": space.bytes, "free_bytes": space.free, "gives_back": space.shrinks })
}

/// Size of a SQLite file, for people.
fn space_line(space: FileSpace) -> String {
    let FileSpace { bytes, free, .. } = space;
    let advice = if space.shrinks {
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
        "id": server.id.to_string(), "version": server.description.version, "address": server.description.address,
        "home_partitions": server.partitions.iter().map(|partition| partition.0).collect::<Vec<_>>(),
    })
}

/// A server that uses the store, for people.
fn server_line(server: &Member) -> String {
    let Member {
        id,
        description: about,
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
