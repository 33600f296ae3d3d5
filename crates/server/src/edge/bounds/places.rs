//! The connections of a port: how many, and which one goes when there is no room.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::warn;

/// After a look that found no connection to close, how long newcomers are refused without another: a look reads all of them.
const FRUITLESS: Duration = Duration::from_millis(100);
/// How long those who were told to leave may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often a full port is logged.
const SILENCE: Duration = Duration::from_secs(10);

/// How much a connection is worth when there is no room, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It has never sent a request.
    Silent,
    /// It has no request now.
    Idle,
    /// Its request arrives in drops, or its answer is not taken.
    Slow,
    Busy,
}

/// The places of a port.
#[derive(Debug)]
pub(crate) struct Places {
    port: &'static str,
    most: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

/// Whether there is a place.
enum Admission {
    Place(Place),
    Refused,
    /// When those who are leaving have left.
    Later,
}

/// The connections in the order of their arrival.
#[derive(Debug, Default)]
struct Taken {
    next: u64,
    seats: BTreeMap<u64, Arc<Seat>>,
    /// Connections that were told to leave, and have not left.
    leaving: usize,
    fruitless: Option<Instant>,
    logged: Option<Instant>,
}

/// What is known of a connection from outside.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// A `Standing` other than slow.
    standing: AtomicU8,
    slow: AtomicBool,
    greeted: AtomicBool,
    /// Bytes that came since the last call, part of a body, or look at the connection. Only its own thread changes them.
    noise: AtomicUsize,
    leave: Notify,
}

/// The place of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    pub(crate) seat: Arc<Seat>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if taken.seats.remove(&self.number).is_none() {
            taken.leaving -= 1;
        }
        drop(taken);
        self.places.freed.notify_one();
    }
}

impl Seat {
    pub(crate) fn set(&self, standing: Standing) {
        self.standing.store(standing as u8, Relaxed);
        self.hear_sense();
    }

    /// Counts bytes that the peer sent; returns how many came since there was sense in them.
    pub(super) fn hear(&self, bytes: usize) -> usize {
        let noise = self.noise.load(Relaxed).saturating_add(bytes);
        self.noise.store(noise, Relaxed);
        noise
    }

    /// Forgets the bytes that came before: they were for something.
    pub(crate) fn hear_sense(&self) {
        self.noise.store(0, Relaxed);
    }

    pub(crate) fn set_slow(&self, slow: bool) {
        self.slow.store(slow, Relaxed);
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.standing.load(Relaxed) {
            0 => Standing::Silent,
            _ if self.slow.load(Relaxed) => Standing::Slow,
            1 => Standing::Idle,
            _ => Standing::Busy,
        }
    }

    /// Notes that the peer has sent what a connection begins with.
    pub(super) fn greet(&self) {
        self.greeted.store(true, Relaxed);
    }

    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted.load(Relaxed)
    }

    /// Returns when this connection must make room.
    pub(crate) async fn told_to_leave(&self) {
        self.leave.notified().await;
    }
}

impl Places {
    pub(crate) fn new(port: &'static str, most: usize) -> Self {
        Self { port, most, taken: Mutex::default(), freed: Notify::new() }
    }

    /// A place for a new connection. When all are taken, those are closed that are worth least, the oldest first; none: all of
    /// them are at work, and the newcomer is refused.
    pub(crate) async fn admit(self: &Arc<Self>) -> Option<Place> {
        loop {
            let freed = self.freed.notified();
            match self.try_admit() {
                Admission::Place(place) => return Some(place),
                Admission::Refused => return None,
                Admission::Later => timeout(FAREWELL, freed).await.ok()?,
            }
        }
    }

    fn try_admit(self: &Arc<Self>) -> Admission {
        let mut taken = self.lock();
        if taken.seats.len() >= self.most {
            // What has been told to leave still has its descriptor.
            if taken.leaving > self.batch() {
                return Admission::Later;
            }
            let made = taken.make_room(self.batch());
            if taken.may_log() {
                let refused = if made { "connections without a request are closed" } else { "new ones are refused" };
                warn!(port = self.port, most = self.most, "too many connections: {refused}");
            }
            if !made {
                return Admission::Refused;
            }
        }
        let seat = Arc::new(Seat::default());
        let number = taken.next;
        taken.next += 1;
        taken.seats.insert(number, seat.clone());
        Admission::Place(Place { places: self.clone(), number, seat })
    }

    /// Closes connections without a request, because the system has no more descriptors.
    pub(crate) fn give_up_some(&self) {
        self.lock().make_room(self.batch());
    }

    /// So many leave at once that looks are rare.
    fn batch(&self) -> usize {
        (self.most / 64).max(1)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Each change of the table is complete or absent.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Tells up to `batch` of the connections of least worth to leave. False: all of them are at work.
    fn make_room(&mut self, batch: usize) -> bool {
        if self.fruitless.is_some_and(|since| since.elapsed() < FRUITLESS) {
            return false;
        }
        let worst = self.seats.values().map(|seat| seat.standing()).min();
        let Some(worst) = worst.filter(|worst| *worst != Standing::Busy) else {
            self.fruitless = Some(Instant::now());
            return false;
        };
        let alike = self.seats.iter().filter(|(_, seat)| seat.standing() == worst);
        let leaving: Vec<u64> = alike.map(|(number, _)| *number).take(batch).collect();
        for seat in leaving.iter().filter_map(|number| self.seats.remove(number)) {
            self.leaving += 1;
            seat.leave.notify_one();
        }
        true
    }

    fn may_log(&mut self) -> bool {
        let may = self.logged.is_none_or(|logged| logged.elapsed() >= SILENCE);
        if may {
            self.logged = Some(Instant::now());
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(places: &Arc<Places>) -> Option<Place> {
        match places.try_admit() {
            Admission::Place(place) => Some(place),
            Admission::Refused => None,
            Admission::Later => panic!("all have left"),
        }
    }

    #[test]
    fn the_oldest_of_least_worth_leaves_first() {
        let places = Arc::new(Places::new("test", 4));
        let mut all: Vec<(usize, Place)> = (0..4).map(|at| (at, admitted(&places).unwrap())).collect();
        all[0].1.seat.set(Standing::Busy);
        all[1].1.seat.set(Standing::Idle);
        all[2].1.seat.set(Standing::Busy);
        all[2].1.seat.set_slow(true);
        let mut gone = Vec::new();
        let mut newcomers = Vec::new();
        while let Some(place) = admitted(&places) {
            place.seat.set(Standing::Busy);
            newcomers.push(place);
            let mut leaves = |(at, place): &mut (usize, Place)| {
                let leaves = !places.lock().seats.contains_key(&place.number);
                gone.extend(leaves.then_some(*at));
                leaves
            };
            all.retain_mut(|place| !leaves(place));
        }
        assert_eq!(gone, [3, 1, 2], "silent, idle, slow; and then newcomers are refused");
        let count = |taken: &Taken| (taken.seats.len(), taken.leaving);
        assert_eq!(count(&places.lock()), (4, 0));
        drop(newcomers.pop());
        assert!(admitted(&places).is_some(), "a place that was left is free");
    }

    #[tokio::test]
    async fn newcomers_wait_until_those_who_leave_have_left() {
        let places = Arc::new(Places::new("test", 2));
        let mut silent: Vec<Place> = vec![places.admit().await.unwrap(), places.admit().await.unwrap()];
        silent.push(places.admit().await.unwrap());
        silent.push(places.admit().await.unwrap());
        assert!(matches!(places.try_admit(), Admission::Later));
        let (last, ()) = tokio::join!(places.admit(), async { drop(silent.remove(0)) });
        assert!(last.is_some());
    }
}
