//! The ready jobs that this server knows of, and who waits for one. The store has the truth; what is here may be late, so a claim
//! of what is gone is refused and costs nothing else.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tokio::sync::Notify;

use crate::id::{JobIndex, WorkflowId};
use crate::record::rows::Row;
use crate::time::Timestamp;

/// Ready jobs of one queue that are kept in memory, some 60 bytes each; the rest is read from the store when they are gone.
const KEPT: usize = 16_384;

/// How long a queue counts as served after somebody asked for it: workers that are busy come back for more.
const SERVED: Duration = Duration::from_secs(120);

/// Queues that are known before those are forgotten that nothing is known of: anybody may ask for any name.
const NAMES: usize = 1_024;

/// What a ready row has after its queue: priority, time, workflow and job. It sorts as jobs are to be taken.
const HEAD: usize = 1 + 8 + 16 + 2;

/// A ready job, as its row sorts it within its queue.
pub(crate) type Head = [u8; HEAD];

/// The ready jobs that this server knows of.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    each: Mutex<HashMap<String, Queue>>,
    /// The time of the latest sweep, in microseconds.
    now: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    heads: BTreeSet<Head>,
    /// Taken out to be claimed; a read of the store that began before must not bring them back.
    claimed: HashSet<Head>,
    /// The store may have none but these.
    complete: bool,
    paused: bool,
    waiting: VecDeque<Arc<Waiter>>,
    /// When somebody last asked for its jobs.
    asked: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Waiter {
    notify: Notify,
    /// It was woken, or went away.
    done: AtomicBool,
}

/// One that waits for work; dropped, it waits no more.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    queues: &'a Queues,
    names: &'a [String],
    waiter: Arc<Waiter>,
}

/// A ready job that was taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) queue: String,
    pub(crate) head: Head,
}

impl Taken {
    pub(crate) fn workflow(&self) -> WorkflowId {
        WorkflowId::from_bytes(self.head[9..25].try_into().expect("16 bytes"))
    }

    pub(crate) fn job(&self) -> JobIndex {
        JobIndex(u16::from_be_bytes(self.head[25..].try_into().expect("2 bytes")))
    }
}

fn split(row: &[u8]) -> Option<(&str, Head)> {
    let (queue, head) = row.split_last_chunk::<HEAD>()?;
    Some((std::str::from_utf8(queue.strip_suffix(&[0])?).ok()?, *head))
}

impl Queues {
    fn each(&self) -> MutexGuard<'_, HashMap<String, Queue>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time has come this far.
    pub(crate) fn pass(&self, now: Timestamp) {
        self.now.store(now.micros(), Relaxed);
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Relaxed))
    }

    /// Takes note of rows that were removed and added, and wakes as many waiters as there is new work.
    pub(crate) fn change(&self, remove: &[Row], add: &[Row]) {
        if remove.is_empty() && add.is_empty() {
            return;
        }
        let mut each = self.each();
        for (queue, head) in remove.iter().filter_map(|row| split(row)) {
            if let Some(queue) = each.get_mut(queue) {
                queue.heads.remove(&head);
                queue.claimed.remove(&head);
            }
        }
        for (name, head) in add.iter().filter_map(|row| split(row)) {
            let queue = entry(&mut each, name);
            queue.insert(head);
            queue.wake();
        }
    }

    /// Adds what the store has. `complete` says that it has no more. Returns how many of these were not known.
    pub(crate) fn refill(&self, name: &str, rows: &[Row], complete: bool) -> usize {
        let mut each = self.each();
        let queue = entry(&mut each, name);
        queue.complete = complete;
        queue.asked = Some(self.now());
        let mut unknown = 0;
        for (_, head) in rows.iter().filter_map(|row| split(row)) {
            if !queue.claimed.contains(&head) {
                unknown += usize::from(!queue.heads.contains(&head));
                queue.insert(head);
            }
        }
        if !queue.paused {
            (0..queue.heads.len().min(queue.waiting.len())).for_each(|_| queue.wake());
        }
        unknown
    }

    /// Takes out at most `limit` jobs of these queues, the most urgent first.
    pub(crate) fn take(&self, names: &[String], limit: usize) -> Vec<Taken> {
        let mut each = self.each();
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str()) {
                queue.asked = Some(self.now());
            }
        }
        let mut taken = Vec::new();
        while taken.len() < limit {
            let first = |name: &&String| {
                let queue = each.get(name.as_str()).filter(|queue| !queue.paused)?;
                Some(*queue.heads.first()?)
            };
            let best = names.iter().filter_map(|name| Some((first(&name)?, name))).min();
            let Some((head, name)) = best else { break };
            let queue = each.get_mut(name.as_str()).expect("it was just looked at");
            queue.heads.remove(&head);
            queue.claimed.insert(head);
            taken.push(Taken { queue: name.clone(), head });
        }
        taken
    }

    /// A claim ended. When it is not known how, the store is asked again.
    pub(crate) fn settle(&self, taken: &Taken, known: Known) {
        if let Some(queue) = self.each().get_mut(&taken.queue) {
            queue.claimed.remove(&taken.head);
            queue.complete &= known == Known::Yes;
        }
    }

    /// A job that was taken out was not claimed: whoever waits may have it.
    pub(crate) fn put_back(&self, taken: &Taken) {
        if let Some(queue) = self.each().get_mut(&taken.queue)
            && queue.claimed.remove(&taken.head)
        {
            queue.insert(taken.head);
            if !queue.paused {
                queue.wake();
            }
        }
    }

    /// Those of `names` that are not paused and of which the store may have more than is known here.
    pub(crate) fn incomplete(&self, names: &[String]) -> Vec<String> {
        let each = self.each();
        let known = |name: &String| each.get(name.as_str()).is_some_and(|queue| queue.complete || queue.paused);
        names.iter().filter(|name| !known(name)).cloned().collect()
    }

    /// Forgets that anything was complete: other servers write too. Returns the queues that somebody waits for.
    pub(crate) fn doubt(&self) -> Vec<String> {
        let mut each = self.each();
        each.values_mut().for_each(|queue| queue.complete = false);
        each.iter_mut().filter_map(|(name, queue)| queue.is_wanted().then(|| name.clone())).collect()
    }

    /// Wakes one waiter of a queue that has something.
    pub(crate) fn nudge(&self, name: &str) {
        if let Some(queue) = self.each().get_mut(name)
            && !queue.heads.is_empty()
        {
            queue.wake();
        }
    }

    /// Whether a job of this priority may be handed over while others wait: not when the queue is paused, nor when a more
    /// urgent one waits.
    pub(crate) fn may_hand_over(&self, name: &str, priority: u8) -> bool {
        let mut each = self.each();
        let Some(queue) = each.get_mut(name) else { return true };
        queue.asked = Some(self.now());
        !queue.paused && queue.heads.first().is_none_or(|head| head[0] >= u8::MAX - priority)
    }

    pub(crate) fn set_paused(&self, name: &str, paused: Paused) {
        let mut each = self.each();
        let queue = entry(&mut each, name);
        queue.paused = paused == Paused::Yes;
        if !queue.paused {
            let ready = queue.heads.len();
            (0..ready.min(queue.waiting.len())).for_each(|_| queue.wake());
        }
    }

    /// Those of `names` that are paused, and those that somebody waits for or has asked for lately.
    pub(crate) fn among(&self, names: &[String]) -> (Vec<String>, Vec<String>) {
        let mut each = self.each();
        let (mut paused, mut served) = (Vec::new(), Vec::new());
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str()) {
                paused.extend(queue.paused.then(|| name.clone()));
                let lately = queue.asked.is_some_and(|asked| self.now().since(asked) <= SERVED);
                served.extend((queue.is_wanted() || lately).then(|| name.clone()));
            }
        }
        (paused, served)
    }

    /// How many wait for work of a queue.
    pub(crate) fn waiting_workers(&self, name: &str) -> usize {
        self.each().get_mut(name).map_or(0, |queue| if queue.is_wanted() { queue.waiting.len() } else { 0 })
    }

    /// Waits for work from now on; work that comes before [`Waiting::arrived`] is not missed.
    pub(crate) fn wait<'a>(&'a self, names: &'a [String]) -> Waiting<'a> {
        let waiter = Arc::new(Waiter::default());
        let mut each = self.each();
        for name in names {
            let queue = entry(&mut each, name);
            queue.asked = Some(self.now());
            queue.is_wanted();
            queue.waiting.push_back(Arc::clone(&waiter));
        }
        drop(each);
        Waiting { queues: self, names, waiter }
    }
}

/// The queue of a name. Before the map grows, it forgets queues that nothing is known of.
fn entry<'a>(each: &'a mut HashMap<String, Queue>, name: &str) -> &'a mut Queue {
    if each.len() >= NAMES && each.len() == each.capacity() && !each.contains_key(name) {
        each.retain(|_, queue| !queue.is_idle());
    }
    each.entry_ref(name).or_default()
}

/// Whether the end of a claim is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Yes,
    No,
}

/// Whether a queue hands out jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// It does not.
    Yes,
    /// It does.
    No,
}

impl Queue {
    fn insert(&mut self, head: Head) {
        self.heads.insert(head);
        if self.heads.len() > KEPT {
            self.heads.pop_last();
            self.complete = false;
        }
    }

    fn wake(&mut self) {
        while let Some(waiter) = self.waiting.pop_front() {
            if !waiter.done.swap(true, AcqRel) {
                return waiter.notify.notify_one();
            }
        }
    }

    /// Whether it can be forgotten, for the price of another look at the store.
    fn is_idle(&mut self) -> bool {
        !self.paused && self.heads.is_empty() && self.claimed.is_empty() && !self.is_wanted()
    }

    /// Whether somebody waits; forgets those that went away.
    fn is_wanted(&mut self) -> bool {
        self.waiting.retain(|waiter| !waiter.done.load(std::sync::atomic::Ordering::Acquire));
        !self.waiting.is_empty()
    }
}

impl Waiting<'_> {
    /// Returns when there may be work.
    ///
    /// # Cancellation
    /// Dropping it wakes another waiter instead, if it was this one's turn.
    pub(crate) async fn arrived(mut self) {
        self.waiter.notify.notified().await;
        // Whoever comes for the work passes nothing on.
        self.names = &[];
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.waiter.done.swap(true, AcqRel) {
            // It was woken and leaves without the work: somebody else must hear of it.
            self.names.iter().for_each(|name| self.queues.nudge(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_uses_are_forgotten() {
        let queues = Queues::default();
        let names = |from: usize| (from..from + 100).map(|at| format!("q{at}")).collect::<Vec<_>>();
        queues.set_paused("paused", Paused::Yes);
        let kept = ["kept".to_owned()];
        let _waiting = queues.wait(&kept);
        for from in (0..100_000).step_by(100) {
            let names = names(from);
            drop(queues.wait(&names));
            names.iter().for_each(|name| _ = queues.refill(name, &[], true));
        }
        assert!(queues.each().len() < 4 * NAMES, "{} are known", queues.each().len());
        assert_eq!(queues.among(&["paused".to_owned()]).0, ["paused"]);
        assert_eq!(queues.waiting_workers("kept"), 1);
    }
}
