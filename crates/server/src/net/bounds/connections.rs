//! The connections of a port: how many there may be, and which one is evicted if there is no room.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::warn;

use super::conn_state::{ConnActivity, ConnState};
use super::counts::{PortCounts, PortSample};
use super::open_files::ConnectionLimit;
use crate::base::log_throttle::LogThrottle;
use crate::base::sync::lock;

/// Time after a failed eviction in which new connections are refused without another attempt. An
/// attempt reads the whole table.
const EVICTION_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time that evicted connections have for closing.
const EVICTION_GRACE: Duration = Duration::from_secs(2);
/// Interval at which a full port, or one that cannot accept, is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The network whose connections count as one client's: an IPv4 address, an IPv6 network of 64
/// bits, which one host may have, or all Unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientNetwork(Option<IpAddr>);

impl ClientNetwork {
    /// The network of all Unix sockets.
    pub(crate) const UNIX_SOCKETS: Self = Self(None);
}

impl From<SocketAddr> for ClientNetwork {
    fn from(peer: SocketAddr) -> Self {
        Self(Some(match peer.ip().to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
            address @ IpAddr::V4(_) => address,
        }))
    }
}

/// The connections of a port.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    port: &'static str,
    max_connections: usize,
    /// Advice for the operator of a full port.
    advice: &'static str,
    counts: Arc<PortCounts>,
    state: Mutex<TableState>,
    slot_freed: Notify,
}

/// The result of an attempt to admit a connection.
enum Admission {
    Admitted(ConnectionSlot),
    Refused,
    /// The table is full until evicted connections have closed.
    AfterEviction,
}

/// The connections in the order of their arrival.
#[derive(Debug, Default)]
struct TableState {
    next_number: u64,
    connections: BTreeMap<u64, OpenConnection>,
    counts: HashMap<ClientNetwork, usize>,
    /// Connections that were evicted, and have not closed.
    evicted: usize,
    /// The time of the last failed eviction, and the number of connections that the newcomer's
    /// network had.
    failed_eviction: Option<(Instant, usize)>,
    full_log: LogThrottle,
    accept_error_log: LogThrottle,
}

#[derive(Debug)]
struct OpenConnection {
    conn_state: Arc<ConnState>,
    network: ClientNetwork,
}

/// The order of eviction, least first: connections that never sent a request, and then those of the
/// network with the most connections, by activity.
type EvictionRank = (bool, Reverse<usize>, ConnActivity);

/// The slot of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    number: u64,
    pub(crate) network: ClientNetwork,
    pub(crate) conn_state: Arc<ConnState>,
}

#[cfg(test)]
impl ConnectionSlot {
    /// A slot in a new table.
    pub(crate) fn for_test() -> Self {
        match Arc::new(ConnectionTable::new("test", ConnectionLimit::fixed(1)))
            .try_admit(ClientNetwork::UNIX_SOCKETS)
        {
            Admission::Admitted(slot) => slot,
            Admission::Refused | Admission::AfterEviction => panic!("there is a place"),
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = lock(&self.table.state);
        if state.remove(self.number).is_none() {
            state.evicted -= 1;
        }
        drop(state);
        self.table.slot_freed.notify_one();
    }
}

impl ConnectionTable {
    pub(crate) fn new(port: &'static str, most: ConnectionLimit) -> Self {
        Self {
            port,
            max_connections: most.connections,
            advice: most.advice(),
            counts: Arc::default(),
            state: Mutex::default(),
            slot_freed: Notify::new(),
        }
    }

    pub(super) fn sample(&self, memory_refusals: u64) -> PortSample {
        let state = lock(&self.state);
        self.counts.sample(
            self.port,
            (state.connections.len() + state.evicted) as u64,
            state.next_number,
            memory_refusals,
        )
    }

    /// Returns a slot for a new connection from `network`. If the table is full, connections
    /// without a request are evicted. Then some of the largest network are evicted, as long as it
    /// has more connections than this one. Returns `None` if the newcomer is refused.
    pub(crate) async fn admit(self: &Arc<Self>, network: ClientNetwork) -> Option<ConnectionSlot> {
        let slot = self.wait_for_slot(network).await;
        if slot.is_none() {
            self.counts.refused.fetch_add(1, Relaxed);
        }
        slot
    }

    async fn wait_for_slot(self: &Arc<Self>, network: ClientNetwork) -> Option<ConnectionSlot> {
        loop {
            let freed = self.slot_freed.notified();
            match self.try_admit(network) {
                Admission::Admitted(slot) => return Some(slot),
                Admission::Refused => return None,
                Admission::AfterEviction => timeout(EVICTION_GRACE, freed).await.ok()?,
            }
        }
    }

    fn try_admit(self: &Arc<Self>, network: ClientNetwork) -> Admission {
        let mut state = lock(&self.state);
        if state.connections.len() >= self.max_connections {
            // An evicted connection has its file descriptor until it has closed.
            if state.evicted > self.eviction_batch() {
                return Admission::AfterEviction;
            }
            let has_evicted = state.evict(Some(network), self.eviction_batch());
            if state.full_log.admit(LOG_INTERVAL).is_some() {
                self.warn_full(if has_evicted {
                    "some are closed"
                } else {
                    "new ones are refused"
                });
            }
            if !has_evicted {
                return Admission::Refused;
            }
        }
        let conn_state = Arc::new(ConnState::new(self.counts.clone()));
        let number = state.insert(OpenConnection {
            conn_state: conn_state.clone(),
            network,
        });
        Admission::Admitted(ConnectionSlot {
            table: self.clone(),
            number,
            network,
            conn_state,
        })
    }

    fn warn_full(&self, refused: &str) {
        warn!(
            port = self.port,
            most = self.max_connections,
            "too many connections: {refused}{}",
            self.advice
        );
    }

    /// Evicts connections without a request after a failed accept: the process may be out of file
    /// descriptors.
    pub(crate) fn on_accept_error(&self, error: &io::Error) {
        let mut state = lock(&self.state);
        if state.accept_error_log.admit(LOG_INTERVAL).is_some() {
            warn!(port = self.port, %error, "cannot accept connections");
        }
        state.evict(None, self.eviction_batch());
    }

    /// Number of connections that are evicted at once, so that evictions are rare.
    fn eviction_batch(&self) -> usize {
        (self.max_connections / 64).max(1)
    }
}

impl TableState {
    fn insert(&mut self, connection: OpenConnection) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        *self.counts.entry(connection.network).or_default() += 1;
        self.connections.insert(number, connection);
        number
    }

    fn remove(&mut self, number: u64) -> Option<OpenConnection> {
        let connection = self.connections.remove(&number)?;
        let left = self.count(connection.network) - 1;
        match left {
            0 => self.counts.remove(&connection.network),
            left => self.counts.insert(connection.network, left),
        };
        Some(connection)
    }

    fn count(&self, network: ClientNetwork) -> usize {
        self.counts.get(&network).copied().unwrap_or(0)
    }

    /// Evicts up to `batch` connections. Returns false if none may be evicted for `newcomer`.
    fn evict(&mut self, newcomer: Option<ClientNetwork>, batch: usize) -> bool {
        let newcomer_count = newcomer.map_or(0, |network| self.count(network));
        if self.failed_eviction.is_some_and(|(since, least)| {
            newcomer_count >= least && since.elapsed() < EVICTION_RETRY_INTERVAL
        }) {
            return false;
        }
        let Some(worst) = self
            .connections
            .values()
            .filter_map(|connection| self.rank(connection, newcomer))
            .min()
        else {
            self.failed_eviction = Some((Instant::now(), newcomer_count));
            return false;
        };
        // A network loses at most half of its lead over the newcomer's network, rounded up: it
        // never gets below that network's number.
        let (had_requests, Reverse(count), _) = worst;
        let max_evicted = if had_requests && count > newcomer_count {
            (count - newcomer_count).div_ceil(2).min(batch)
        } else {
            batch
        };
        let candidates = self
            .connections
            .iter()
            .filter(|(_, connection)| self.rank(connection, newcomer) == Some(worst));
        let numbers: Vec<u64> = candidates
            .map(|(number, _)| *number)
            .take(max_evicted)
            .collect();
        for number in numbers {
            if let Some(connection) = self.remove(number) {
                self.evicted += 1;
                connection.conn_state.evict();
            }
        }
        true
    }

    /// Returns `None` if the connection may not be evicted for `newcomer`.
    fn rank(
        &self,
        connection: &OpenConnection,
        newcomer: Option<ClientNetwork>,
    ) -> Option<EvictionRank> {
        let activity = connection.conn_state.activity();
        if activity == ConnActivity::NoRequest {
            return Some((false, Reverse(0), activity));
        }
        let count = self.count(connection.network);
        let newcomer_count = newcomer.map_or(0, |network| self.count(network));
        let may_be_evicted = match activity {
            ConnActivity::Busy => newcomer.is_some() && count > newcomer_count + 1,
            _ => newcomer == Some(connection.network) || count > newcomer_count,
        };
        may_be_evicted.then_some((true, Reverse(count), activity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> ClientNetwork {
        SocketAddr::from(([10, 0, 0, last], 1)).into()
    }

    fn admitted(table: &Arc<ConnectionTable>) -> Option<ConnectionSlot> {
        admitted_from(table, 1)
    }

    fn admitted_from(table: &Arc<ConnectionTable>, last: u8) -> Option<ConnectionSlot> {
        match table.try_admit(from(last)) {
            Admission::Admitted(slot) => Some(slot),
            Admission::Refused => None,
            Admission::AfterEviction => panic!("all have left"),
        }
    }

    #[test]
    fn the_oldest_of_least_worth_leaves_first() {
        let table = Arc::new(ConnectionTable::new("test", ConnectionLimit::fixed(4)));
        let mut all: Vec<(usize, ConnectionSlot)> =
            (0..4).map(|at| (at, admitted(&table).unwrap())).collect();
        all[0].1.conn_state.set_activity(ConnActivity::Busy);
        all[1].1.conn_state.set_activity(ConnActivity::Idle);
        all[2].1.conn_state.set_activity(ConnActivity::Busy);
        all[2].1.conn_state.set_slow(true);
        let mut gone = Vec::new();
        let mut newcomers = Vec::new();
        while let Some(slot) = admitted(&table) {
            slot.conn_state.set_activity(ConnActivity::Busy);
            newcomers.push(slot);
            let mut leaves = |(at, slot): &mut (usize, ConnectionSlot)| {
                let leaves = !lock(&table.state).connections.contains_key(&slot.number);
                gone.extend(leaves.then_some(*at));
                leaves
            };
            all.retain_mut(|slot| !leaves(slot));
        }
        assert_eq!(
            gone,
            [3, 1, 2],
            "silent, idle, slow; and then newcomers are refused"
        );
        let count = |taken: &TableState| (taken.connections.len(), taken.evicted);
        assert_eq!(count(&lock(&table.state)), (4, 0));
        drop(newcomers.pop());
        assert!(admitted(&table).is_some(), "a place that was left is free");
    }

    /// One address with a call now and then in each connection had all places, and honest idle ones left for it.
    #[test]
    fn who_has_the_most_gives_also_when_at_work() {
        let table = Arc::new(ConnectionTable::new("test", ConnectionLimit::fixed(100)));
        let seated = |last, activity| {
            let slot = admitted_from(&table, last)?;
            slot.conn_state.set_activity(activity);
            Some(slot)
        };
        let quiet: Vec<ConnectionSlot> = (0..2)
            .map(|_| seated(1, ConnActivity::Idle).unwrap())
            .collect();
        let greedy: Vec<ConnectionSlot> = (0..98)
            .map(|_| seated(2, ConnActivity::Busy).unwrap())
            .collect();
        assert!(
            seated(2, ConnActivity::Busy).is_none(),
            "nobody leaves for who has the most"
        );
        let newcomer = seated(3, ConnActivity::Busy)
            .expect("although one of the other address was refused just now");
        assert!(
            greedy
                .iter()
                .any(|place| !lock(&table.state).connections.contains_key(&place.number))
        );
        drop((greedy, newcomer));
        assert!(
            quiet
                .iter()
                .all(|place| lock(&table.state).connections.contains_key(&place.number))
        );
    }

    #[test]
    fn addresses_with_as_many_leave_nothing_to_each_other() {
        let table = Arc::new(ConnectionTable::new("test", ConnectionLimit::fixed(4)));
        let each: Vec<ConnectionSlot> = [1, 1, 2, 2]
            .iter()
            .map(|last| admitted_from(&table, *last).unwrap())
            .collect();
        each.iter()
            .for_each(|slot| slot.conn_state.set_activity(ConnActivity::Busy));
        assert!(admitted_from(&table, 1).is_none());
        assert!(admitted_from(&table, 3).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_origin() {
        let network = |text: &str| ClientNetwork::from(SocketAddr::new(text.parse().unwrap(), 1));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), from(1));
    }

    #[tokio::test]
    async fn newcomers_wait_until_those_who_leave_have_left() {
        let table = Arc::new(ConnectionTable::new("test", ConnectionLimit::fixed(2)));
        let mut silent: Vec<ConnectionSlot> = vec![
            table.admit(ClientNetwork::UNIX_SOCKETS).await.unwrap(),
            table.admit(ClientNetwork::UNIX_SOCKETS).await.unwrap(),
        ];
        silent.push(table.admit(ClientNetwork::UNIX_SOCKETS).await.unwrap());
        silent.push(table.admit(ClientNetwork::UNIX_SOCKETS).await.unwrap());
        assert!(matches!(
            table.try_admit(ClientNetwork::UNIX_SOCKETS),
            Admission::AfterEviction
        ));
        let (last, ()) = tokio::join!(table.admit(ClientNetwork::UNIX_SOCKETS), async {
            drop(silent.remove(0))
        });
        assert!(last.is_some());
    }
}
