//! The client for callers: spreads keys over the servers and joins their answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_pipeline::{Address, Connector};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::charge::Charge;
use crate::link::Link;
use crate::node::{Node, ServerState};
use crate::pending::CounterRead;
use crate::servers::{Servers, server_index};
use crate::stats::{Counters, Stats, count};

/// Maximum number of keys in one `get`. A line of 64 keys has at most 16 KiB, which servers and
/// proxies accept.
const MAX_KEYS_PER_GET: usize = 64;

/// Settings of a client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// TLS connector. `None` if connections are not encrypted.
    pub tls: Option<Connector>,
    /// Maximum time for opening a connection, and for one answer.
    pub timeout: Duration,
    /// Maximum number of bytes that are queued for one server.
    pub queue_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tls: None,
            // The memcached client of the reference has this timeout, too.
            timeout: Duration::from_millis(500),
            // About 20,000 charges. A core that does nothing else charges 10 MiB a second, and a
            // server that is half a second late counts as lost.
            queue_bytes: 4 * 1024 * 1024,
        }
    }
}

/// Reads and changes counters on behalf of one core. Clones are the same client.
///
/// Connections are opened when they are needed. They close when the last clone is dropped and no
/// reply is pending.
#[derive(Debug, Clone)]
pub struct Client(Arc<ClientState>);

/// State that the clones of a client share.
#[derive(Debug)]
struct ClientState {
    config: Config,
    servers: Servers,
    server_nodes: Mutex<ServerNodes>,
    counters: Arc<Counters>,
}

/// The server list in use and the node of each server, in the order of the list.
#[derive(Debug, Default)]
struct ServerNodes {
    list: Arc<Vec<Address>>,
    nodes: Arc<[Arc<Node>]>,
}

/// Keys that one `get` requests from one server.
struct GetRequest {
    /// Positions of the keys in the call.
    positions: Vec<usize>,
    reply: Option<oneshot::Receiver<Vec<CounterRead>>>,
}

impl Client {
    /// Creates a client of these servers, whose list may change.
    #[must_use]
    pub fn new(config: Config, servers: Servers) -> Self {
        Self(Arc::new(ClientState {
            config,
            servers,
            server_nodes: Mutex::default(),
            counters: Arc::default(),
        }))
    }

    /// Reads counters and returns one result for each key, in their order. Must be called in a
    /// runtime with I/O and time.
    ///
    /// A key is [`CounterRead::Unknown`] if its server does not answer until `deadline` or within
    /// [`Config::timeout`].
    pub async fn read<K: AsRef<[u8]>>(&self, keys: &[K], deadline: Instant) -> Vec<CounterRead> {
        let counters = &self.0.counters;
        count(&counters.keys_requested, keys.len());
        let requests = self.request(keys);
        let deadline = deadline.min(Instant::now() + self.0.config.timeout).into();
        let mut found = vec![CounterRead::Unknown; keys.len()];
        for GetRequest { positions, reply } in requests {
            let Some(reply) = reply else { continue };
            let Ok(Ok(values)) = timeout_at(deadline, reply).await else {
                continue;
            };
            for (place, value) in positions.into_iter().zip(values) {
                found[place] = value;
            }
        }
        let counter = if found.contains(&CounterRead::Unknown) {
            &counters.failed_reads
        } else {
            &counters.reads
        };
        count(counter, 1);
        found
    }

    /// Queues a change of a counter and returns at once.
    pub fn change(&self, charge: Charge<'_>) {
        let nodes = self.nodes();
        match nodes.get(server_index(charge.key, nodes.len().max(1))) {
            Some(node) => node.change(charge),
            None => count(&self.0.counters.failed_changes, 1),
        }
    }

    /// Waits until every queued change has succeeded or failed. May be called from any runtime.
    pub async fn flush(&self) {
        for node in &*self.current().1 {
            node.flush().await;
        }
    }

    /// Returns the counts of what the client did.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.counters.read()
    }

    /// Sends the `get` requests to all servers at once.
    fn request<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<GetRequest> {
        let nodes = self.nodes();
        if nodes.is_empty() {
            return Vec::new();
        }
        let mut places: Vec<(usize, usize)> = keys
            .iter()
            .enumerate()
            .map(|(index, key)| (server_index(key.as_ref(), nodes.len()), index))
            .collect();
        // A stable sort keeps the keys of a server in the order of the call.
        places.sort_by_key(|(server, _)| *server);
        let send_get = |places: &[(usize, usize)]| {
            let mut line = Vec::new();
            for (_, index) in places {
                if !line.is_empty() {
                    line.push(b' ');
                }
                line.extend_from_slice(keys[*index].as_ref());
            }
            let reply = nodes[places[0].0].request(line.into(), places.len());
            GetRequest {
                positions: places.iter().map(|(_, index)| *index).collect(),
                reply,
            }
        };
        places
            .chunk_by(|one, other| one.0 == other.0)
            .flat_map(|places| places.chunks(MAX_KEYS_PER_GET))
            .map(send_get)
            .collect()
    }

    /// Returns the nodes, after the current server list has been applied.
    fn nodes(&self) -> Arc<[Arc<Node>]> {
        let (list, nodes) = self.current();
        if self.0.servers.is_current(&list) {
            nodes
        } else {
            self.apply_server_list()
        }
    }

    fn current(&self) -> (Arc<Vec<Address>>, Arc<[Arc<Node>]>) {
        let ring = self.lock();
        (ring.list.clone(), ring.nodes.clone())
    }

    fn lock(&self) -> MutexGuard<'_, ServerNodes> {
        let nodes = &self.0.server_nodes;
        nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the current server list. Servers that stay keep their connections. Removed servers
    /// finish their queued commands.
    fn apply_server_list(&self) -> Arc<[Arc<Node>]> {
        let mut ring = self.lock();
        let list = self.0.servers.list();
        let mut nodes: Vec<Arc<Node>> = Vec::with_capacity(list.len());
        for address in &*list {
            let existing = nodes
                .iter()
                .chain(&*ring.nodes)
                .find(|node| node.address == *address)
                .cloned();
            nodes.push(existing.unwrap_or_else(|| self.start_node(address)));
        }
        let removed = ring
            .nodes
            .iter()
            .filter(|node| !list.contains(&node.address));
        removed.for_each(|node| node.set_server_state(ServerState::Leaving));
        *ring = ServerNodes {
            list,
            nodes: nodes.into(),
        };
        ring.nodes.clone()
    }

    fn start_node(&self, address: &Address) -> Arc<Node> {
        let config = &self.0.config;
        let node = Arc::new(Node::new(
            address.clone(),
            config.queue_bytes,
            self.0.counters.clone(),
        ));
        // The task ends by itself when the node leaves, at the latest when the timeout of its last
        // command is over.
        tokio::spawn(
            Link {
                node: node.clone(),
                connector: config.tls.clone(),
                timeout: config.timeout,
            }
            .run(),
        );
        node
    }
}

impl Drop for ClientState {
    fn drop(&mut self) {
        let ring = self
            .server_nodes
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for node in &*ring.nodes {
            node.set_server_state(ServerState::Leaving);
        }
    }
}
