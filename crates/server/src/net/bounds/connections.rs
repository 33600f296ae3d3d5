//! The connections of a port: how many, and which one goes when there is no room.

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

/// After a look that found no connection to close, how long newcomers are refused without another: a look reads all of them.
const FRUITLESS: Duration = Duration::from_millis(100);
/// How long those who were told to leave may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often a full port, or one that cannot accept, is logged.
const SILENCE: Duration = Duration::from_secs(10);

/// Whose connections count together: those of an IPv4 address, of an IPv6 network of 64 bits, which one host may have, or of all
/// Unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientNetwork(Option<IpAddr>);

impl ClientNetwork {
    /// Of a Unix socket.
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

/// The places of a port.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    port: &'static str,
    most: usize,
    /// What an operator can do about it.
    advice: &'static str,
    counts: Arc<Counts>,
    taken: Mutex<TableState>,
    freed: Notify,
}

/// Whether there is a place.
enum Admission {
    ConnectionSlot(ConnectionSlot),
    Refused,
    /// When those who are leaving have left.
    Later,
}

/// The connections in the order of their arrival.
#[derive(Debug, Default)]
struct TableState {
    next: u64,
    guests: BTreeMap<u64, OpenConnection>,
    counts: HashMap<ClientNetwork, usize>,
    /// Connections that were told to leave, and have not left.
    leaving: usize,
    /// When nobody was found who has to leave for an origin of so many connections.
    fruitless: Option<(Instant, usize)>,
    full: Line,
    failed: Line,
}

/// A line that is logged once in a while.
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

/// Who leaves first, least first: who never sent a request, and then those of the origin with the most connections, by what they
/// are worth.
type EvictionRank = (bool, Reverse<usize>, ConnActivity);

/// The place of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    places: Arc<ConnectionTable>,
    number: u64,
    pub(crate) origin: ClientNetwork,
    pub(crate) seat: Arc<ConnState>,
}

#[cfg(test)]
impl ConnectionSlot {
    /// A place of a port of its own.
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

    /// A place for a new connection of `origin`. When all are taken, those leave that never sent a request, and then some of the
    /// origin that has the most, as long as it has more than this one. None: the newcomer is refused.
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
            // What has been told to leave still has its descriptor.
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

    /// Closes connections without a request, because the system refused one: it may be that there are no more descriptors.
    pub(crate) fn give_up_some(&self, error: &io::Error) {
        let mut taken = self.lock();
        if taken.failed.may_be_logged() {
            warn!(port = self.port, %error, "cannot accept connections");
        }
        taken.make_room(None, self.batch());
    }

    /// So many leave at once that looks are rare.
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

    /// Tells up to `batch` connections to leave. False: nobody has to leave for `newcomer`.
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
        // Nobody gives so many that they have fewer than who comes.
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

    /// None: it does not have to leave for `newcomer`.
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
