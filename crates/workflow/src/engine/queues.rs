//! The ready jobs that this server knows of, and who waits for one. The store has the truth; what is here may be late, so a claim
//! of what is gone is refused and costs nothing else.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::{HashMap, HashSet};
use tokio::sync::Notify;

use crate::id::{JobIndex, WorkflowId};
use crate::rows::Row;

/// Ready jobs of one queue that are kept in memory, some 60 bytes each; the rest is read from the store when they are gone.
const KEPT: usize = 16_384;

/// What a ready row has after its queue: priority, time, workflow and job. It sorts as jobs are to be taken.
const HEAD: usize = 1 + 8 + 16 + 2;

/// A ready job, as its row sorts it within its queue.
pub(crate) type Head = [u8; HEAD];

/// The ready jobs that this server knows of.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    each: Mutex<HashMap<String, Queue>>,
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
            let queue = each.entry_ref(name).or_default();
            queue.insert(head);
            queue.wake();
        }
    }

    /// Adds what the store has. `complete` says that it has no more.
    pub(crate) fn refill(&self, name: &str, rows: &[Row], complete: bool) {
        let mut each = self.each();
        let queue = each.entry_ref(name).or_default();
        queue.complete = complete;
        for (_, head) in rows.iter().filter_map(|row| split(row)) {
            if !queue.claimed.contains(&head) {
                queue.insert(head);
            }
        }
        if !queue.paused {
            (0..queue.heads.len().min(queue.waiting.len())).for_each(|_| queue.wake());
        }
    }

    /// Takes out at most `limit` jobs of these queues, the most urgent first.
    pub(crate) fn take(&self, names: &[String], limit: usize) -> Vec<Taken> {
        let mut each = self.each();
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
        let each = self.each();
        let Some(queue) = each.get(name) else { return true };
        !queue.paused && queue.heads.first().is_none_or(|head| head[0] >= u8::MAX - priority)
    }

    pub(crate) fn set_paused(&self, name: &str, paused: Paused) {
        let mut each = self.each();
        let queue = each.entry_ref(name).or_default();
        queue.paused = paused == Paused::Yes;
        if !queue.paused {
            let ready = queue.heads.len();
            (0..ready.min(queue.waiting.len())).for_each(|_| queue.wake());
        }
    }

    /// Those of `names` that are paused, and those that somebody waits for or takes from.
    pub(crate) fn among(&self, names: &[String]) -> (Vec<String>, Vec<String>) {
        let mut each = self.each();
        let (mut paused, mut served) = (Vec::new(), Vec::new());
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str()) {
                paused.extend(queue.paused.then(|| name.clone()));
                served.extend((queue.is_wanted() || !queue.claimed.is_empty()).then(|| name.clone()));
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
            let queue = each.entry_ref(name.as_str()).or_default();
            queue.is_wanted();
            queue.waiting.push_back(Arc::clone(&waiter));
        }
        drop(each);
        Waiting { queues: self, names, waiter }
    }
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
