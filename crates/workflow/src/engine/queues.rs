//! The ready jobs that this server knows of, and the workers that wait for one. Only the store is right: what is here may be out of
//! date. A claim of a job that is gone is refused, and costs nothing else.

mod aside;
pub(crate) mod closings;
pub(crate) mod except;
mod heads;
mod interest;
mod lane;
pub(crate) mod lanes;
pub(crate) mod lessee;
mod limited;
mod line;
mod paused;
mod queue;
pub(crate) mod reading;
mod refill_target;
pub(crate) mod rivals;
pub(crate) mod taking;
mod together;
mod turns;
mod waiting;
mod weights;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::Notify;

use self::aside::Aside;
use self::closings::Closings;
use self::lanes::Room;
pub use self::paused::Paused;
use self::queue::Queue;
use self::reading::{Began, Found, Refilled};
pub use self::refill_target::Patience;
pub(crate) use self::refill_target::{ToRead, Where};
pub(crate) use self::taking::{ClaimEnd, Taken, Wanting};
use self::turns::Turns;
use self::weights::Weights;
use super::home::mine::Mine;
use crate::record::rows::{ReadyRow, Row};
use crate::time::Timestamp;

/// How long a queue counts as served after a worker asked for it: workers that are busy ask again later.
const SERVED: Duration = Duration::from_secs(120);

/// From this number of queues on, those without jobs and workers are forgotten: a worker may ask for any name.
const NAMES: usize = 1_024;

/// Memory for the keys of limits of all queues.
const KEYS: usize = 64 << 20;
/// The ready jobs that this server knows of.
#[derive(Debug)]
pub(crate) struct Queues {
    mine: Arc<Mine>,
    /// Whether what other servers make ready is heard of, or there are none.
    trusted: AtomicBool,
    /// Whether somebody was told that a worker waits.
    told: AtomicBool,
    /// Notified when a worker waits and nobody was told.
    waited: Notify,
    each: Mutex<HashMap<String, Queue>>,
    aside: Mutex<Aside>,
    closings: Mutex<Closings>,
    room: Room,
    /// How the keys of queues weigh. To be locked after `each`, or without it.
    weights: Mutex<HashMap<String, Arc<Weights>>>,
    /// Notified when a limit has no room any more, which may have some again before others.
    closed: Notify,
    turns: Turns,
    /// The time of the latest sweep or claim, in microseconds.
    now: AtomicU64,
    /// Notified when a queue is to be read again.
    called: Notify,
    /// Whether somebody was told that a worker takes jobs.
    told_of_work: AtomicBool,
    /// Notified when a worker takes jobs and nobody was told.
    worked: Notify,
    /// When a worker last began to wait.
    waited_at: AtomicU64,
    /// How often a worker that waited was woken.
    woken: AtomicU64,
    /// How many workers wait that take jobs as they become ready.
    takers: AtomicUsize,
}

impl Queues {
    pub(crate) fn new(mine: Arc<Mine>) -> Self {
        Self {
            mine,
            trusted: AtomicBool::new(true),
            told: AtomicBool::default(),
            waited: Notify::default(),
            each: Mutex::default(),
            aside: Mutex::default(),
            closings: Mutex::default(),
            room: Room::new(KEYS),
            weights: Mutex::default(),
            closed: Notify::default(),
            turns: Turns::default(),
            now: AtomicU64::default(),
            called: Notify::default(),
            told_of_work: AtomicBool::default(),
            worked: Notify::default(),
            waited_at: AtomicU64::default(),
            woken: AtomicU64::default(),
            takers: AtomicUsize::default(),
        }
    }

    fn each(&self) -> MutexGuard<'_, HashMap<String, Queue>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be locked after `each`, or without it.
    fn aside(&self) -> MutexGuard<'_, Aside> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Likewise.
    fn closings(&self) -> MutexGuard<'_, Closings> {
        self.closings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of a name. Before the map grows, it forgets queues without jobs and workers.
    fn entry<'a>(&self, each: &'a mut HashMap<String, Queue>, name: &str) -> &'a mut Queue {
        if each.len() >= NAMES && each.len() == each.capacity() && !each.contains_key(name) {
            each.retain(|_, queue| !queue.is_idle());
        }
        each.entry_ref(name)
            .or_insert_with(|| Queue::new(self.room.clone(), self.weights_of(name)))
    }

    /// Sets the time of the latest sweep.
    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now.store(now.micros(), Relaxed);
    }

    /// It is `now`, if nobody knows of a later time.
    pub(crate) fn advance(&self, now: Timestamp) {
        self.now.fetch_max(now.micros(), Relaxed);
    }

    pub(crate) fn wake_ups(&self) -> u64 {
        self.woken.load(Relaxed)
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Relaxed))
    }

    /// Removes and adds rows, and wakes one waiting worker for each new job.
    pub(crate) fn change(&self, remove: &[Row], add: &[Row]) {
        if remove.is_empty() && add.is_empty() {
            return;
        }
        let mut each = self.each();
        for row in remove.iter().filter_map(|row| ReadyRow::read(row)) {
            if let Some(queue) = each.get_mut(row.queue) {
                queue.remove_row(&row);
            }
        }
        for row in add.iter().filter_map(|row| ReadyRow::read(row)) {
            let queue = self.entry(&mut each, row.queue);
            let key = queue.lanes.key_of(&row);
            if self.mine.has(row.place.workflow().partition()) || queue.is_wanted() {
                queue.insert(&key, row.place, &self.mine, self.now());
                queue.wake_for(&key, &row.place);
            } else {
                queue.leave(&key, row.place, &self.mine);
            }
        }
    }

    /// Another server takes these, or tries to: should one of them be there all the same, the next read finds it.
    pub(crate) fn note_taken(&self, rows: &[Row]) {
        let mut each = self.each();
        for row in rows.iter().filter_map(|row| ReadyRow::read(row)) {
            if let Some(queue) = each.get_mut(row.queue) {
                let key = queue.lanes.key_of(&row);
                queue.remove(&key, &row.place);
                queue.doubt_lane(&key, row.place.workflow().partition(), &self.mine);
            }
        }
    }

    /// Takes over what a read found of a queue.
    fn refill(&self, name: &str, began: Began, found: &Found) -> Refilled {
        let mut each = self.each();
        let queue = self.entry(&mut each, name);
        queue.asked = Some(self.now());
        let refilled = queue.reconcile(began, found, (&mut self.aside(), &self.mine), self.now());
        queue.wake_all(&refilled.new);
        refilled
    }

    /// Queues that a worker waits for and that were resumed, or of which a claim failed, since they were last read.
    pub(crate) fn failed(&self) -> Vec<String> {
        let mut each = self.each();
        each.iter_mut()
            .filter_map(|(name, queue)| (queue.failed && queue.is_wanted()).then(|| name.clone()))
            .collect()
    }

    /// Whether there are none of these, and no jobs are passed over until the store works.
    pub(crate) fn are_well(&self) -> bool {
        !self
            .each()
            .values_mut()
            .any(|queue| queue.failed && queue.is_wanted())
            && self.aside().is_written()
    }

    /// Returns when there are some again, or may be.
    pub(crate) async fn called(&self) {
        self.called.notified().await;
    }

    /// How many jobs of a queue are known here.
    pub(crate) fn known(&self, name: &str) -> usize {
        self.each().get(name).map_or(0, |queue| queue.lanes.len())
    }

    /// Whether a job of one of these queues is known here that a worker may have.
    pub(crate) fn have_some(&self, names: &[String]) -> bool {
        let each = self.each();
        let has_some = |queue: &Queue| !queue.paused && queue.lanes.open() > 0;
        names
            .iter()
            .filter_map(|name| each.get(name.as_str()))
            .any(has_some)
    }

    /// At most `most` of these queues: they take turns.
    pub(crate) fn in_turn(&self, names: Vec<String>, most: usize) -> Vec<String> {
        self.turns.next(names, most)
    }

    /// The store may have jobs of any queue that are not known here.
    pub(crate) fn doubt_all(&self) {
        self.each().values_mut().for_each(Queue::doubt);
    }

    /// Whether what other servers make ready is heard of, or there are none. If not, what is known here is never all.
    pub(crate) fn trust(&self, trusted: bool) {
        self.trusted.store(trusted, Relaxed);
    }

    /// Sorts what is known again after other partitions have come home.
    pub(crate) fn sort_out(&self) {
        self.each()
            .values_mut()
            .for_each(|queue| queue.sort_out(&self.mine));
    }

    /// Whether other servers are the homes of some partitions.
    pub(crate) fn are_shared(&self) -> bool {
        self.mine.is_part()
    }

    /// Wakes one waiter of a queue that has something, or may have.
    pub(crate) fn wake_one(&self, name: &str) {
        let now = self.now();
        if let Some(queue) = self.each().get_mut(name) {
            let woken = queue.lanes.open() > 0 && queue.wake_one();
            // Whoever leaves may have been woken to read it.
            if !woken && !queue.paused && queue.complete.is_due(Where::Anywhere, now) {
                queue.wake_any();
            }
        }
    }

    /// Whether a job of this priority may be leased without entering the queue: not when the queue is paused or has a more urgent
    /// job.
    pub(crate) fn may_hand_over(&self, name: &str, priority: u8) -> bool {
        let mut each = self.each();
        let Some(queue) = each.get_mut(name) else {
            return true;
        };
        queue.asked = Some(self.now());
        queue.is_free_for(priority)
    }

    /// A queue that is not paused any more is to be read again: what is known of it may be old. [`Queues::failed`] names it until then, and the
    /// read wakes those who wait.
    pub(crate) fn set_paused(&self, name: &str, paused: Paused) {
        let mut each = self.each();
        let queue = self.entry(&mut each, name);
        if std::mem::replace(&mut queue.paused, paused == Paused::Yes) && !queue.paused {
            queue.lanes.forget_all();
            queue.doubt();
            queue.failed = true;
            self.called.notify_one();
        }
    }

    /// The queues that are paused.
    pub(crate) fn paused(&self) -> Vec<String> {
        self.each()
            .iter()
            .filter(|(_, queue)| queue.paused)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Those of `names` that are paused, and those that a worker waits for or has asked for lately.
    pub(crate) fn paused_and_served(&self, names: &[String]) -> (Vec<String>, Vec<String>) {
        let mut each = self.each();
        let mut paused = Vec::new();
        let mut served = Vec::new();
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str()) {
                paused.extend(queue.paused.then(|| name.clone()));
                let lately = queue
                    .asked
                    .is_some_and(|asked| self.now().since(asked) <= SERVED);
                served.extend((queue.is_wanted() || lately).then(|| name.clone()));
            }
        }
        (paused, served)
    }

    /// How many workers wait for jobs of a queue.
    pub(crate) fn waiting_workers(&self, name: &str) -> usize {
        self.each().get_mut(name).map_or(0, |queue| {
            if queue.is_wanted() {
                queue.waiting.len()
            } else {
                0
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::except::Except;
    use super::*;

    #[test]
    fn names_that_nobody_uses_are_forgotten() {
        let queues = Queues::new(Arc::new(Mine::all(1)));
        let names = |from: usize| {
            (from..from + 100)
                .map(|at| format!("q{at}"))
                .collect::<Vec<_>>()
        };
        queues.set_paused("paused", Paused::Yes);
        let kept = ["kept".to_owned()];
        let _waiting = queues.wait(&kept, None, Except::default(), None);
        for from in (0..100_000).step_by(100) {
            let names = names(from);
            drop(queues.wait(&names, None, Except::default(), None));
            queues
                .read(&names)
                .finish(names.iter().map(|_| Found::default()));
        }
        assert!(
            queues.each().len() < 4 * NAMES,
            "{} are known",
            queues.each().len()
        );
        assert_eq!(
            queues.paused_and_served(&["paused".to_owned()]).0,
            ["paused"]
        );
        assert_eq!(queues.waiting_workers("kept"), 1);
    }
}
