//! The ready jobs that this server knows of, and the workers that wait for one. Only the store is right: what is here may be out of
//! date. A claim of a job that is gone is refused, and costs nothing else.

mod aside;
pub(crate) mod except;
mod heads;
mod interest;
mod paused;
mod queue;
pub(crate) mod reading;
pub(crate) mod rivals;
mod together;
mod turns;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::Notify;

use self::aside::Aside;
use self::except::Except;
use self::heads::Turn;
pub use self::paused::Paused;
use self::queue::{Queue, read_row};
use self::reading::{Began, Found, Refilled};
use self::turns::Turns;
use super::home::mine::Mine;
use super::post::spread::Near;
use crate::id::{JobIndex, Partition, WorkflowId};
use crate::record::rows::{ReadyPlace, Row};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// How long a queue counts as served after a worker asked for it: workers that are busy ask again later.
const SERVED: Duration = Duration::from_secs(120);

/// From this number of queues on, those without jobs and workers are forgotten: a worker may ask for any name.
const NAMES: usize = 1_024;

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
}

/// A ready job that was taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) queue: Arc<str>,
    pub(crate) head: ReadyPlace,
}

impl Taken {
    pub(crate) fn workflow(&self) -> WorkflowId {
        self.head.workflow()
    }

    pub(crate) fn job(&self) -> JobIndex {
        self.head.job()
    }
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
            turns: Turns::default(),
            now: AtomicU64::default(),
            called: Notify::default(),
            told_of_work: AtomicBool::default(),
            worked: Notify::default(),
            waited_at: AtomicU64::default(),
            woken: AtomicU64::default(),
        }
    }

    fn each(&self) -> MutexGuard<'_, HashMap<String, Queue>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be locked after `each`, or without it.
    fn aside(&self) -> MutexGuard<'_, Aside> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
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
        for (queue, head) in remove.iter().filter_map(|row| read_row(row)) {
            if let Some(queue) = each.get_mut(queue) {
                queue.remove(&head);
            }
        }
        for (name, head) in add.iter().filter_map(|row| read_row(row)) {
            let queue = entry(&mut each, name);
            if self.mine.has(head.workflow().partition()) || queue.is_wanted() {
                queue.insert(head, &self.mine, self.now());
                queue.wake_for(&head);
            } else {
                queue.leave(head);
            }
        }
    }

    /// Another server takes these, or tries to: should one of them be there all the same, the next read finds it.
    pub(crate) fn note_taken(&self, rows: &[Row]) {
        let mut each = self.each();
        for (queue, head) in rows.iter().filter_map(|row| read_row(row)) {
            if let Some(queue) = each.get_mut(queue) {
                queue.remove(&head);
                queue.doubt();
            }
        }
    }

    /// Takes over what a read found of a queue.
    fn refill(&self, name: &str, began: Began, found: Found<'_>) -> Refilled {
        let mut each = self.each();
        let queue = entry(&mut each, name);
        queue.asked = Some(self.now());
        let refilled = queue.reconcile(began, found, (&mut self.aside(), &self.mine), self.now());
        queue.wake_all(&refilled.new);
        refilled
    }

    /// How many rows of one partition the last reads of these queues passed over.
    pub(crate) fn passed_over(&self, names: &[String]) -> usize {
        let each = self.each();
        names.iter().filter_map(|name| Some(each.get(name.as_str())?.passed)).max().unwrap_or(0)
    }

    /// Takes out at most `limit` jobs of these queues, the most urgent first, of those as urgent the near ones, and none of `except`.
    pub(crate) fn take(&self, names: &[String], limit: usize, (except, near): (&Except, Near<'_>)) -> Vec<Taken> {
        let mut each = self.each();
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str()) {
                queue.asked = Some(self.now());
            }
        }
        let taken = first_of(&each, names, limit, (except, near, self.now()));
        for Taken { queue, head } in &taken {
            each.get_mut(&**queue).expect("it was just looked at").take(*head);
        }
        drop(each);
        if !taken.is_empty() {
            self.note_work();
        }
        taken
    }

    /// A claim ended.
    pub(crate) fn settle(&self, taken: &Taken, end: ClaimEnd) {
        let mut each = self.each();
        let Some(queue) = each.get_mut(&*taken.queue) else { return };
        queue.changes.note(taken.head);
        queue.claimed.remove(&taken.head);
        if !self.mine.has(taken.workflow().partition()) {
            queue.claims.note(end, self.now());
            if end == ClaimEnd::Unknown {
                // Nor are the others that were read with it.
                queue.heads.away.clear();
            }
        }
        match end {
            ClaimEnd::Leased => {}
            ClaimEnd::Unknown => queue.doubt(),
            ClaimEnd::Failed => {
                queue.doubt();
                queue.failed = true;
                self.called.notify_one();
            }
        }
    }

    /// A job that was taken out was not claimed: the next worker that waits may have it.
    pub(crate) fn put_back(&self, taken: &Taken) {
        if let Some(queue) = self.each().get_mut(&*taken.queue)
            && queue.claimed.remove(&taken.head)
        {
            queue.insert(taken.head, &self.mine, self.now());
            if !queue.paused {
                queue.wake_for(&taken.head);
            }
        }
    }

    /// A job was not ready, or its workflow was gone. If the store still has the row when it is read again, the row is stale.
    pub(crate) fn note_orphan(&self, taken: &Taken) {
        self.aside().note_orphan(taken.head);
    }

    /// Passes over a workflow that cannot be read, for a while, and says so.
    pub(crate) fn pass_over(&self, workflow: WorkflowId, error: &StoreError) {
        if self.put_aside(workflow) {
            tracing::error!(%workflow, %error, "a workflow that cannot be read is passed over");
        }
    }

    /// Passes over the jobs of a workflow for a while. Returns whether they were not passed over before.
    pub(crate) fn put_aside(&self, workflow: WorkflowId) -> bool {
        self.drop_heads(workflow);
        self.aside().put(workflow, self.now())
    }

    /// Passes over the jobs of a workflow until [`Queues::take_unwritten`]: the store failed, the workflow did not.
    pub(crate) fn put_unwritten(&self, workflow: WorkflowId) {
        self.drop_heads(workflow);
        self.aside().put_unwritten(workflow);
        self.called.notify_one();
    }

    /// The store works in these partitions: jobs that were passed over until then are looked for.
    pub(crate) fn take_unwritten(&self, works: impl Fn(Partition) -> bool) {
        if self.aside().take_unwritten(works) {
            for queue in self.each().values_mut() {
                queue.doubt();
                queue.failed = true;
            }
        }
    }

    fn drop_heads(&self, workflow: WorkflowId) {
        for queue in self.each().values_mut() {
            queue.heads.retain(|head| head.workflow() != workflow);
        }
    }

    /// Whether the jobs of a workflow are passed over now.
    pub(crate) fn is_aside(&self, workflow: WorkflowId) -> bool {
        self.aside().has(workflow, self.now())
    }

    /// Queues that a worker waits for and that were resumed, or of which a claim failed, since they were last read.
    pub(crate) fn failed(&self) -> Vec<String> {
        let mut each = self.each();
        each.iter_mut().filter_map(|(name, queue)| (queue.failed && queue.is_wanted()).then(|| name.clone())).collect()
    }

    /// Whether there are none of these, and no jobs are passed over until the store works.
    pub(crate) fn are_well(&self) -> bool {
        !self.each().values_mut().any(|queue| queue.failed && queue.is_wanted()) && self.aside().is_written()
    }

    /// Returns when there are some again, or may be.
    pub(crate) async fn called(&self) {
        self.called.notified().await;
    }

    /// How many jobs of a queue are known here.
    pub(crate) fn known(&self, name: &str) -> usize {
        self.each().get(name).map_or(0, |queue| queue.heads.len())
    }

    /// How many workflows are passed over.
    pub(crate) fn number_aside(&self) -> usize {
        self.aside().number()
    }

    /// Those of `names` that are not paused and of which the store may have more jobs than are known here; with [`Where::Here`], more that are
    /// at home here.
    pub(crate) fn incomplete(&self, names: &[String], place: Where) -> Vec<String> {
        let (each, now) = (self.each(), self.now());
        let trusted = self.trusted.load(Relaxed);
        let known = |name: &String| {
            each.get(name.as_str()).is_some_and(|queue| {
                let complete = match place {
                    Where::Here => queue.complete.here(now),
                    Where::Anywhere => queue.complete.everywhere(now) && !queue.heads.are_stale(now),
                };
                queue.paused || (trusted && complete)
            })
        };
        names.iter().filter(|name| !known(name)).cloned().collect()
    }

    /// Marks all queues as incomplete, because other servers write too. Returns those that a worker waits for.
    pub(crate) fn mark_incomplete(&self) -> Vec<String> {
        self.doubt_all();
        self.each().iter_mut().filter_map(|(name, queue)| queue.is_wanted().then(|| name.clone())).collect()
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
        self.each().values_mut().for_each(|queue| queue.sort_out(&self.mine));
    }

    /// Whether other servers are the homes of some partitions.
    pub(crate) fn are_shared(&self) -> bool {
        self.mine.is_part()
    }

    /// Wakes one waiter of a queue that has something.
    pub(crate) fn wake_one(&self, name: &str) {
        if let Some(queue) = self.each().get_mut(name)
            && !queue.heads.is_empty()
        {
            queue.wake_one();
        }
    }

    /// Whether a job of this priority may be leased without entering the queue: not when the queue is paused or has a more urgent
    /// job.
    pub(crate) fn may_hand_over(&self, name: &str, priority: u8) -> bool {
        let mut each = self.each();
        let Some(queue) = each.get_mut(name) else { return true };
        queue.asked = Some(self.now());
        !queue.paused && queue.heads.first().is_none_or(|head| head.priority() <= priority)
    }

    /// A queue that is not paused any more is to be read again: what is known of it may be old. [`Queues::failed`] names it until then, and the
    /// read wakes those who wait.
    pub(crate) fn set_paused(&self, name: &str, paused: Paused) {
        let mut each = self.each();
        let queue = entry(&mut each, name);
        if std::mem::replace(&mut queue.paused, paused == Paused::Yes) && !queue.paused {
            queue.heads.retain(|_| false);
            queue.doubt();
            queue.failed = true;
            self.called.notify_one();
        }
    }

    /// The queues that are paused.
    pub(crate) fn paused(&self) -> Vec<String> {
        self.each().iter().filter(|(_, queue)| queue.paused).map(|(name, _)| name.clone()).collect()
    }

    /// Those of `names` that are paused, and those that a worker waits for or has asked for lately.
    pub(crate) fn paused_and_served(&self, names: &[String]) -> (Vec<String>, Vec<String>) {
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

    /// How many workers wait for jobs of a queue.
    pub(crate) fn waiting_workers(&self, name: &str) -> usize {
        self.each().get_mut(name).map_or(0, |queue| if queue.is_wanted() { queue.waiting.len() } else { 0 })
    }
}

/// Jobs of these queues to be taken now, without those of `except`: the most urgent first.
fn first_of(
    each: &HashMap<String, Queue>,
    names: &[String],
    limit: usize,
    (except, near, now): (&Except, Near<'_>, Timestamp),
) -> Vec<Taken> {
    let line = |(at, name): (usize, &String)| {
        let queue = each.get(name.as_str()).filter(|queue| !queue.paused && !names[..at].contains(name))?;
        Some((queue.heads.in_turn(now, near).filter(|(.., head)| except.allows(head)).peekable(), at))
    };
    let mut lines: Vec<_> = names.iter().enumerate().filter_map(line).collect();
    let mut first: Vec<(Turn, usize)> = Vec::new();
    while first.len() < together::looked_at(limit) {
        let turns = lines.iter_mut().enumerate().filter_map(|(line, (turns, _))| Some((*turns.peek()?, line)));
        let Some((turn, line)) = turns.min() else { break };
        if first.len() >= limit && first.last().is_some_and(|(last, _)| last.0 != turn.0) {
            break;
        }
        let (turns, at) = &mut lines[line];
        turns.next();
        first.push((turn, *at));
    }
    let names: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
    let taken = together::choose(&first, limit).into_iter().map(|(turn, at)| (turn.2, at));
    taken.map(|(head, at)| Taken { queue: Arc::clone(&names[at]), head }).collect()
}

/// The queue of a name. Before the map grows, it forgets queues without jobs and workers.
fn entry<'a>(each: &'a mut HashMap<String, Queue>, name: &str) -> &'a mut Queue {
    if each.len() >= NAMES && each.len() == each.capacity() && !each.contains_key(name) {
        each.retain(|_, queue| !queue.is_idle());
    }
    each.entry_ref(name).or_default()
}

/// Where jobs are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// In the partitions that are at home here.
    Here,
    Anywhere,
}

/// How the claim of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimEnd {
    Leased,
    /// The store knows whether the job is still ready.
    Unknown,
    /// The same, and the store failed.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_uses_are_forgotten() {
        let queues = Queues::new(Arc::new(Mine::all(1)));
        let names = |from: usize| (from..from + 100).map(|at| format!("q{at}")).collect::<Vec<_>>();
        queues.set_paused("paused", Paused::Yes);
        let kept = ["kept".to_owned()];
        let _waiting = queues.wait(&kept, Except::default());
        for from in (0..100_000).step_by(100) {
            let names = names(from);
            drop(queues.wait(&names, Except::default()));
            queues.read(&names).finish(names.iter().map(|_| Found { partitions: &[], limit: 1 }));
        }
        assert!(queues.each().len() < 4 * NAMES, "{} are known", queues.each().len());
        assert_eq!(queues.paused_and_served(&["paused".to_owned()]).0, ["paused"]);
        assert_eq!(queues.waiting_workers("kept"), 1);
    }
}
