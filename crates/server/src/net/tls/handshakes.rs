//! Handshakes in progress. If there are too many, the oldest of the network with the most ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::net::bounds::ClientNetwork;

/// Handshakes of each network in the order of their start, with the signal that ends each.
#[derive(Debug)]
pub(super) struct HandshakeTable {
    most: usize,
    next: u64,
    count: usize,
    origins: HashMap<ClientNetwork, BTreeMap<u64, Arc<Notify>>>,
}

impl HandshakeTable {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            next: 0,
            count: 0,
            origins: HashMap::new(),
        }
    }

    /// Begins a handshake. Returns its number and the signal that ends it. If there are too many,
    /// the oldest of the network that has the most ends.
    pub(super) fn begin(&mut self, origin: ClientNetwork) -> (u64, Arc<Notify>) {
        let number = self.next;
        let end = Arc::new(Notify::new());
        self.next += 1;
        self.count += 1;
        self.origins
            .entry(origin)
            .or_default()
            .insert(number, end.clone());
        if self.count > self.most {
            self.make_room();
        }
        (number, end)
    }

    /// Removes a handshake that has ended.
    pub(super) fn end(&mut self, origin: ClientNetwork, number: u64) {
        let Some(own) = self.origins.get_mut(&origin) else {
            return;
        };
        self.count -= usize::from(own.remove(&number).is_some());
        if own.is_empty() {
            self.origins.remove(&origin);
        }
    }

    /// Ends the oldest handshake of the network that has the most. Of networks with equal numbers,
    /// the one with the oldest loses it.
    fn make_room(&mut self) {
        let oldest = |own: &BTreeMap<u64, Arc<Notify>>| {
            own.first_key_value().map(|(number, _)| Reverse(*number))
        };
        let most = self
            .origins
            .iter()
            .max_by_key(|(_, own)| (own.len(), oldest(own)))
            .map(|(origin, _)| *origin);
        let Some(origin) = most else { return };
        let first = self
            .origins
            .get(&origin)
            .and_then(|own| own.first_key_value());
        let Some((number, end)) = first.map(|(number, end)| (*number, end.clone())) else {
            return;
        };
        end.notify_one();
        self.end(origin, number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn from(last: u8) -> ClientNetwork {
        SocketAddr::from(([10, 0, 0, last], 1)).into()
    }

    /// The numbers of those under way, in order.
    fn left(under_way: &HandshakeTable) -> Vec<u64> {
        let mut numbers: Vec<u64> = under_way
            .origins
            .values()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers.len(), under_way.count);
        numbers
    }

    #[test]
    fn the_oldest_of_the_origin_with_the_most_gives() {
        let mut under_way = HandshakeTable::new(4);
        for (origin, expected) in [
            (1, &[0][..]),
            (2, &[0, 1]),
            (2, &[0, 1, 2]),
            (2, &[0, 1, 2, 3]),
            (2, &[0, 2, 3, 4]),
            (3, &[0, 3, 4, 5]),
            (1, &[3, 4, 5, 6]),
            (3, &[4, 5, 6, 7]),
        ] {
            under_way.begin(from(origin));
            assert_eq!(left(&under_way), expected, "one of {origin}");
        }
        under_way.end(from(3), 5);
        under_way.end(from(3), 5);
        under_way.end(from(9), 6);
        assert_eq!(left(&under_way), [4, 6, 7]);
    }

    #[test]
    fn when_all_origins_are_alike_the_oldest_gives() {
        let mut under_way = HandshakeTable::new(3);
        (1..=9).for_each(|origin| drop(under_way.begin(from(origin))));
        assert_eq!(left(&under_way), [6, 7, 8]);
    }
}
