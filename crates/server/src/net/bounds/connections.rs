//! The connections of a port: how many there may be, and which one is evicted if there is no room.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::warn;

use super::conn_state::{ConnActivity, ConnState};
use super::counts::{Counts, PortSample};
use super::descriptors::Most;

/// Time after a failed eviction in which new connections are refused without another attempt. An
/// attempt reads the whole table.
const FRUITLESS: Duration = Duration::from_millis(100);
/// Time that evicted connections have for closing.
const FAREWELL: Duration = Duration::from_secs(2);
/// Interval at which a full port, or one that cannot accept, is logged.
const SILENCE: Duration = Duration::from_secs(10);

/// The network whose connections count as one client's: an IPv4 address, an IPv6 network of 64
/// bits, which one host may have, or all Unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientNetwork(Option<IpAddr>);

impl ClientNetwork {
    /// The network of all Unix sockets.
    pub(crate) const HERE: Self = Self(None);
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
    most: usize,
    /// Advice for the operator of a full port.
    advice: &'static str,
    counts: Arc<Counts>,
    taken: Mutex<TableState>,
    freed: Notify,
}

/// The result of an attempt to admit a connection.
enum Admission {
    ConnectionSlot(ConnectionSlot),
    Refused,
    /// The table is full until evicted connections have closed.
    Later,
}

/// The connections in the order of their arrival.
#[derive(Debug, Default)]
struct TableState {
    next: u64,
    guests: BTreeMap<u64, OpenConnection>,
    counts: HashMap<ClientNetwork, usize>,
    /// Connections that were evicted, and have not closed.
    leaving: usize,
    /// The time of the last failed eviction, and the number of connections that the newcomer's
    /// network had.
    fruitless: Option<(Instant, usize)>,
    full: Line,
    failed: Line,
}

/// Limits how often a line is logged.
#[derive(Debug, Default)]
struct Line(Option<Instant>);

impl Line {
    fn may_be_logged(&mut self) -> bool {
        let may = self.0.is_none_or(|logged| logged.elapsed() >= SILENCE);
        if may {
            self.0 = Some(Instant::now());
        }
        may
    }
}

#[derive(Debug)]
struct OpenConnection {
    seat: Arc<ConnState>,
    origin: ClientNetwork,
}

/// The order of eviction, least first: connections that never sent a request, and then those of the
/// network with the most connections, by activity.
type EvictionRank = (bool, Reverse<usize>, ConnActivity);

/// The slot of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    places: Arc<ConnectionTable>,
    number: u64,
    pub(crate) origin: ClientNetwork,
    pub(crate) seat: Arc<ConnState>,
}

#[cfg(test)]
impl ConnectionSlot {
    /// A slot in a new table.
    pub(crate) fn for_test() -> Self {
        match Arc::new(ConnectionTable::new("test", Most::fixed(1))).try_admit(ClientNetwork::HERE)
        {
            Admission::ConnectionSlot(place) => place,
            Admission::Refused | Admission::Later => panic!("there is a place"),
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if taken.remove(self.number).is_none() {
            taken.leaving -= 1;
        }
        drop(taken);
        self.places.freed.notify_one();
    }
}

impl ConnectionTable {
    pub(crate) fn new(port: &'static str, most: Most) -> Self {
        Self {
            port,
            most: most.connections,
            advice: most.advice(),
            counts: Arc::default(),
            taken: Mutex::default(),
            freed: Notify::new(),
        }
    }

    pub(super) fn sample(&self, unfinished: u64) -> PortSample {
        let taken = self.lock();
        self.counts.sample(
            self.port,
            (taken.guests.len() + taken.leaving) as u64,
            taken.next,
            unfinished,
        )
    }

    /// Returns a slot for a new connection from `network`. If the table is full, connections
    /// without a request are evicted. Then some of the largest network are evicted, as long as it
    /// has more connections than this one. Returns `None` if the newcomer is refused.
    pub(crate) async fn admit(self: &Arc<Self>, origin: ClientNetwork) -> Option<ConnectionSlot> {
        let place = self.wait(origin).await;
        if place.is_none() {
            self.counts.refuse();
        }
        place
    }

    async fn wait(self: &Arc<Self>, origin: ClientNetwork) -> Option<ConnectionSlot> {
        loop {
            let freed = self.freed.notified();
            match self.try_admit(origin) {
                Admission::ConnectionSlot(place) => return Some(place),
                Admission::Refused => return None,
                Admission::Later => timeout(FAREWELL, freed).await.ok()?,
            }
        }
    }

    fn try_admit(self: &Arc<Self>, origin: ClientNetwork) -> Admission {
        let mut taken = self.lock();
        if taken.guests.len() >= self.most {
            // An evicted connection has its file descriptor until it has closed.
            if taken.leaving > self.batch() {
                return Admission::Later;
            }
            let made = taken.make_room(Some(origin), self.batch());
            if taken.full.may_be_logged() {
                let refused = if made {
                    "some are closed"
                } else {
                    "new ones are refused"
                };
                warn!(
                    port = self.port,
                    most = self.most,
                    "too many connections: {refused}{}",
                    self.advice
                );
            }
            if !made {
                return Admission::Refused;
            }
        }
        let seat = Arc::new(ConnState::new(self.counts.clone()));
        let number = taken.insert(OpenConnection {
            seat: seat.clone(),
            origin,
        });
        Admission::ConnectionSlot(ConnectionSlot {
            places: self.clone(),
            number,
            origin,
            seat,
        })
    }

    /// Evicts connections without a request after a failed accept: the process may be out of file
    /// descriptors.
    pub(crate) fn give_up_some(&self, error: &io::Error) {
        let mut taken = self.lock();
        if taken.failed.may_be_logged() {
            warn!(port = self.port, %error, "cannot accept connections");
        }
        taken.make_room(None, self.batch());
    }

    /// Number of connections that are evicted at once, so that evictions are rare.
    fn batch(&self) -> usize {
        (self.most / 64).max(1)
    }

    fn lock(&self) -> MutexGuard<'_, TableState> {
        // Each change of the table is complete or absent.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableState {
    fn insert(&mut self, guest: OpenConnection) -> u64 {
        let number = self.next;
        self.next += 1;
        *self.counts.entry(guest.origin).or_default() += 1;
        self.guests.insert(number, guest);
        number
    }

    fn remove(&mut self, number: u64) -> Option<OpenConnection> {
        let guest = self.guests.remove(&number)?;
        let left = self.count(guest.origin) - 1;
        match left {
            0 => self.counts.remove(&guest.origin),
            left => self.counts.insert(guest.origin, left),
        };
        Some(guest)
    }

    fn count(&self, origin: ClientNetwork) -> usize {
        self.counts.get(&origin).copied().unwrap_or(0)
    }

    /// Evicts up to `batch` connections. Returns false if none may be evicted for `newcomer`.
    fn make_room(&mut self, newcomer: Option<ClientNetwork>, batch: usize) -> bool {
        let own = newcomer.map_or(0, |origin| self.count(origin));
        if self
            .fruitless
            .is_some_and(|(since, least)| own >= least && since.elapsed() < FRUITLESS)
        {
            return false;
        }
        let Some(worst) = self
            .guests
            .values()
            .filter_map(|guest| self.rank(guest, newcomer))
            .min()
        else {
            self.fruitless = Some((Instant::now(), own));
            return false;
        };
        // A network loses at most half of its lead over the newcomer's network, rounded up: it
        // never gets below that network's number.
        let (had_requests, Reverse(count), _) = worst;
        let most = if had_requests && count > own {
            (count - own).div_ceil(2).min(batch)
        } else {
            batch
        };
        let alike = self
            .guests
            .iter()
            .filter(|(_, guest)| self.rank(guest, newcomer) == Some(worst));
        let leaving: Vec<u64> = alike.map(|(number, _)| *number).take(most).collect();
        for number in leaving {
            if let Some(guest) = self.remove(number) {
                self.leaving += 1;
                guest.seat.tell_to_leave();
            }
        }
        true
    }

    /// Returns `None` if the connection may not be evicted for `newcomer`.
    fn rank(
        &self,
        guest: &OpenConnection,
        newcomer: Option<ClientNetwork>,
    ) -> Option<EvictionRank> {
        let standing = guest.seat.standing();
        if standing == ConnActivity::NoRequest {
            return Some((false, Reverse(0), standing));
        }
        let count = self.count(guest.origin);
        let own = newcomer.map_or(0, |origin| self.count(origin));
        let gives = match standing {
            ConnActivity::Busy => newcomer.is_some() && count > own + 1,
            _ => newcomer == Some(guest.origin) || count > own,
        };
        gives.then_some((true, Reverse(count), standing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> ClientNetwork {
        SocketAddr::from(([10, 0, 0, last], 1)).into()
    }

    fn admitted(places: &Arc<ConnectionTable>) -> Option<ConnectionSlot> {
        admitted_from(places, 1)
    }

    fn admitted_from(places: &Arc<ConnectionTable>, last: u8) -> Option<ConnectionSlot> {
        match places.try_admit(from(last)) {
            Admission::ConnectionSlot(place) => Some(place),
            Admission::Refused => None,
            Admission::Later => panic!("all have left"),
        }
    }

    #[test]
    fn the_oldest_of_least_worth_leaves_first() {
        let places = Arc::new(ConnectionTable::new("test", Most::fixed(4)));
        let mut all: Vec<(usize, ConnectionSlot)> =
            (0..4).map(|at| (at, admitted(&places).unwrap())).collect();
        all[0].1.seat.set(ConnActivity::Busy);
        all[1].1.seat.set(ConnActivity::Idle);
        all[2].1.seat.set(ConnActivity::Busy);
        all[2].1.seat.set_slow(true);
        let mut gone = Vec::new();
        let mut newcomers = Vec::new();
        while let Some(place) = admitted(&places) {
            place.seat.set(ConnActivity::Busy);
            newcomers.push(place);
            let mut leaves = |(at, place): &mut (usize, ConnectionSlot)| {
                let leaves = !places.lock().guests.contains_key(&place.number);
                gone.extend(leaves.then_some(*at));
                leaves
            };
            all.retain_mut(|place| !leaves(place));
        }
        assert_eq!(
            gone,
            [3, 1, 2],
            "silent, idle, slow; and then newcomers are refused"
        );
        let count = |taken: &TableState| (taken.guests.len(), taken.leaving);
        assert_eq!(count(&places.lock()), (4, 0));
        drop(newcomers.pop());
        assert!(admitted(&places).is_some(), "a place that was left is free");
    }

    /// One address with a call now and then in each connection had all places, and honest idle ones left for it.
    #[test]
    fn who_has_the_most_gives_also_when_at_work() {
        let places = Arc::new(ConnectionTable::new("test", Most::fixed(100)));
        let seated = |last, standing| {
            let place = admitted_from(&places, last)?;
            place.seat.set(standing);
            Some(place)
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
                .any(|place| !places.lock().guests.contains_key(&place.number))
        );
        drop((greedy, newcomer));
        assert!(
            quiet
                .iter()
                .all(|place| places.lock().guests.contains_key(&place.number))
        );
    }

    #[test]
    fn addresses_with_as_many_leave_nothing_to_each_other() {
        let places = Arc::new(ConnectionTable::new("test", Most::fixed(4)));
        let each: Vec<ConnectionSlot> = [1, 1, 2, 2]
            .iter()
            .map(|last| admitted_from(&places, *last).unwrap())
            .collect();
        each.iter()
            .for_each(|place| place.seat.set(ConnActivity::Busy));
        assert!(admitted_from(&places, 1).is_none());
        assert!(admitted_from(&places, 3).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_origin() {
        let origin = |text: &str| ClientNetwork::from(SocketAddr::new(text.parse().unwrap(), 1));
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), from(1));
    }

    #[tokio::test]
    async fn newcomers_wait_until_those_who_leave_have_left() {
        let places = Arc::new(ConnectionTable::new("test", Most::fixed(2)));
        let mut silent: Vec<ConnectionSlot> = vec![
            places.admit(ClientNetwork::HERE).await.unwrap(),
            places.admit(ClientNetwork::HERE).await.unwrap(),
        ];
        silent.push(places.admit(ClientNetwork::HERE).await.unwrap());
        silent.push(places.admit(ClientNetwork::HERE).await.unwrap());
        assert!(matches!(
            places.try_admit(ClientNetwork::HERE),
            Admission::Later
        ));
        let (last, ()) = tokio::join!(places.admit(ClientNetwork::HERE), async {
            drop(silent.remove(0))
        });
        assert!(last.is_some());
    }
}
