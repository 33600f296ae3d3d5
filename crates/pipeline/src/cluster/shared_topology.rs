//! The topology that all clients of a process share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;
use tokio::time::Instant;

use super::View;
use crate::config::{Address, AddressMap, Config, Servers};
use crate::wire::{SLOTS, Slot};

/// The topology that the clients of a process share: each core has its own client, and what one of
/// them learns, all get. One client at a time queries the servers.
///
/// Each client keeps its own snapshot with its own connections, so the path of a call never reads
/// from here.
#[derive(Debug)]
pub(crate) struct SharedTopology {
    state: Mutex<SharedState>,
    /// Number of changes so far.
    changes: watch::Sender<u64>,
    /// Lock of the client that queries the servers, with the result of the last refresh.
    pub(crate) refresh_lock: tokio::sync::Mutex<Option<LastRefresh>>,
    /// Lock of the client that listens to the sentinels.
    pub(crate) listen_lock: tokio::sync::Mutex<()>,
}

/// One refresh: its time and its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastRefresh {
    pub(crate) started_at: Instant,
    /// Whether it found a view.
    pub(crate) found: bool,
}

#[derive(Debug, Default)]
struct SharedState {
    /// Number of views so far.
    version: u64,
    view: Option<Arc<View>>,
    /// Slots that moved since the view according to redirects, in order.
    moved: Vec<(Slot, Address)>,
    latest: HashMap<Slot, Address>,
    /// Reason why there is no newer view: the answers of the last servers that were queried.
    failure: Option<Arc<str>>,
}

/// Version of the shared topology that a client has installed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SeenVersion {
    pub(crate) version: u64,
    moved: usize,
}

/// Changes that a client has not installed yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TopologyChanges {
    /// A newer view, if there is one.
    pub(crate) view: Option<Arc<View>>,
    pub(crate) moved: Vec<(Slot, Address)>,
    pub(crate) seen: SeenVersion,
}

/// The shared topologies in use. They are global because the clients of a process are created in
/// separate places, for limits and for workflows.
static REGISTRY: Mutex<Vec<RegistryEntry>> = Mutex::new(Vec::new());

/// The servers of a shared topology, and the translation of the addresses that they name.
#[derive(Debug)]
struct RegistryEntry {
    servers: Servers,
    address_map: Option<AddressMap>,
    topology: Weak<SharedTopology>,
}

impl RegistryEntry {
    fn is_for(&self, config: &Config) -> bool {
        self.servers == config.servers
            && AddressMap::are_same(self.address_map.as_ref(), config.address_map.as_ref())
    }
}

impl SharedTopology {
    /// Returns the topology shared by the clients of these servers.
    pub(crate) fn for_config(config: &Config) -> Arc<Self> {
        let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
        registry.retain(|subject| subject.topology.strong_count() > 0);
        let same = registry.iter().find(|subject| subject.is_for(config));
        if let Some(topology) = same.and_then(|subject| subject.topology.upgrade()) {
            return topology;
        }
        let topology = Arc::new(Self::new());
        let servers = config.servers.clone();
        let address_map = config.address_map.clone();
        registry.push(RegistryEntry {
            servers,
            address_map,
            topology: Arc::downgrade(&topology),
        });
        topology
    }

    fn new() -> Self {
        Self {
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            refresh_lock: tokio::sync::Mutex::default(),
            listen_lock: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to later changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Sets a new view, which replaces earlier redirects.
    pub(crate) fn set_view(&self, view: View) {
        let mut state = self.state();
        *state = SharedState {
            version: state.version + 1,
            view: Some(Arc::new(view)),
            ..SharedState::default()
        };
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Records that the servers gave no view, with their answers. The known view stays.
    pub(crate) fn set_failure(&self, reason: String) {
        self.state().failure = Some(reason.into());
    }

    /// Returns the reason why there is no newer view. `None` directly after a view.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.state().failure.clone()
    }

    /// Records the redirect of a client that used the view of `version`. Ignores it if it is known,
    /// or may be older than the view.
    pub(crate) fn on_moved(&self, version: u64, slot: Slot, owner: &Address) {
        let mut state = self.state();
        // The list is bounded, because nodes that name each other could fill it until the next
        // view, at most a second later.
        let is_full = state.moved.len() >= SLOTS;
        if state.version != version || is_full || state.latest.get(&slot) == Some(owner) {
            return;
        }
        state.latest.insert(slot, owner.clone());
        state.moved.push((slot, owner.clone()));
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns the changes that are newer than `seen`.
    pub(crate) fn changes_since(&self, seen: SeenVersion) -> TopologyChanges {
        let state = self.state();
        let is_newer = state.version != seen.version;
        let from = if is_newer { 0 } else { seen.moved };
        TopologyChanges {
            view: state.view.clone().filter(|_| is_newer),
            moved: state.moved[from..].to_vec(),
            seen: SeenVersion {
                version: state.version,
                moved: state.moved.len(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    fn address(port: u16) -> Address {
        format!("127.0.0.1:{port}").parse().unwrap()
    }

    #[test]
    fn a_client_takes_over_what_is_new_to_it() {
        let knowledge = SharedTopology::new();
        let changes = knowledge.changes_since(SeenVersion::default());
        assert_eq!(
            (changes.view, changes.moved, changes.seen),
            (None, Vec::new(), SeenVersion::default())
        );
        let view = View {
            ranges: vec![(0..=9, address(1))],
            cluster_epoch: None,
        };
        knowledge.set_view(view.clone());
        knowledge.on_moved(1, slot(3), &address(2));
        knowledge.on_moved(1, slot(3), &address(2));
        let changes = knowledge.changes_since(SeenVersion::default());
        assert_eq!(
            (changes.view.as_deref(), &changes.moved[..]),
            (Some(&view), &[(slot(3), address(2))][..])
        );
        let seen = changes.seen;
        knowledge.on_moved(1, slot(3), &address(1));
        let changes = knowledge.changes_since(seen);
        assert_eq!(
            (changes.view, &changes.moved[..]),
            (None, &[(slot(3), address(1))][..])
        );
        knowledge.set_view(view.clone());
        // The redirect of a client with an older view.
        knowledge.on_moved(1, slot(4), &address(2));
        let changes = knowledge.changes_since(seen);
        assert_eq!(
            (changes.view.as_deref(), &changes.moved[..]),
            (Some(&view), &[][..])
        );
    }

    #[test]
    fn knowledge_is_shared_by_those_who_name_the_same_servers_and_dies_with_them() {
        let config = || Config::cluster(vec![address(1), address(2)]);
        let one = SharedTopology::for_config(&config());
        let other = SharedTopology::for_config(&config());
        assert!(Arc::ptr_eq(&one, &other));
        let mut mapped = config();
        mapped.address_map = Some(AddressMap::new(|address| address));
        assert!(
            !Arc::ptr_eq(&one, &SharedTopology::for_config(&mapped)),
            "addresses mean something else there"
        );
        assert!(!Arc::ptr_eq(
            &one,
            &SharedTopology::for_config(&Config::cluster(vec![address(3)]))
        ));
        one.set_view(View {
            ranges: Vec::new(),
            cluster_epoch: None,
        });
        drop((one, other));
        assert_eq!(
            SharedTopology::for_config(&config())
                .changes_since(SeenVersion::default())
                .view,
            None
        );
    }

    #[test]
    fn redirects_between_two_views_are_bounded() {
        let knowledge = SharedTopology::new();
        for turn in 0..3 * SLOTS {
            knowledge.on_moved(0, slot(1), &address(1 + (turn % 2) as u16));
        }
        assert_eq!(
            knowledge.changes_since(SeenVersion::default()).moved.len(),
            SLOTS
        );
    }
}
