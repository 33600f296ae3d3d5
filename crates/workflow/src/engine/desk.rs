//! Where the requests about the workflows of one partition are served, in rounds: all that waits is played on the states in memory,
//! and what changed is written with one call of the store.

mod entry;
pub(super) mod group;
pub(super) mod play;
pub(super) mod turn;
mod undelivered;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use quick_cache::unsync::Cache;

use self::entry::{Entry, Weight};
use self::group::{Basis, Group, Posted, load_missing};
use super::error::EngineError;
use super::{Engine, Notice};
use crate::id::{JobIndex, Partition, WorkflowId};
use crate::record::change::{Applied, Change, Write};
use crate::store::StoreError;

/// Requests of one round: enough to share a write, few enough that the first is not kept waiting for the last.
const ROUND: usize = 256;
/// Requests that may wait; each is held by a caller.
const WAITING: usize = 65_536;
/// How often a round is played again after others wrote first.
const ATTEMPTS: usize = 16;

/// The desk of one partition.
#[derive(Debug)]
pub(crate) struct Desk {
    partition: Partition,
    inbox: Mutex<Inbox>,
    states: Mutex<Cache<WorkflowId, Box<Entry>, Weight>>,
}

#[derive(Debug, Default)]
struct Inbox {
    waiting: VecDeque<Posted>,
    /// A task serves the desk.
    busy: bool,
    closed: bool,
}

impl Desk {
    /// `memory` bounds the states that are kept, in bytes.
    pub(crate) fn new(partition: Partition, memory: u64) -> Self {
        let states = Cache::with_weighter((memory / 1_024) as usize, memory, Weight);
        Self { partition, inbox: Mutex::default(), states: Mutex::new(states) }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn states(&self) -> MutexGuard<'_, Cache<WorkflowId, Box<Entry>, Weight>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts requests in line. True when a task must be started that serves the desk.
    ///
    /// # Errors
    /// They do not fit, or the engine closes; they are given back.
    pub(crate) fn post(&self, posted: Vec<Posted>) -> Result<bool, (Vec<Posted>, EngineError)> {
        let mut inbox = self.inbox();
        if inbox.closed {
            return Err((posted, EngineError::Closed));
        }
        if !inbox.waiting.is_empty() && inbox.waiting.len() + posted.len() > WAITING {
            return Err((posted, EngineError::Overloaded));
        }
        inbox.waiting.extend(posted);
        Ok(!std::mem::replace(&mut inbox.busy, true))
    }

    /// The task that served the desk is gone: the next request starts another. Who waits hears that the engine closes.
    pub(crate) fn abandon(&self) {
        let mut inbox = self.inbox();
        inbox.busy = false;
        let waiting = std::mem::take(&mut inbox.waiting);
        // What is dropped with them may want to post.
        drop(inbox);
        drop(waiting);
    }

    pub(crate) fn close(&self) {
        self.inbox().closed = true;
    }

    fn next_round(&self) -> Option<Vec<Posted>> {
        let mut inbox = self.inbox();
        let size = inbox.waiting.len().min(ROUND);
        inbox.busy = size > 0;
        inbox.busy.then(|| inbox.waiting.drain(..size).collect())
    }

    /// Serves all that waits.
    pub(crate) async fn serve(&self, engine: &Engine) {
        while let Some(posted) = self.next_round() {
            let mut groups = self.grouped(posted);
            for _ in 0..ATTEMPTS {
                groups = self.round(engine, groups).await;
                if groups.is_empty() {
                    break;
                }
            }
            for group in groups {
                let error = EngineError::Contended { workflow: group.id };
                group.posted.into_iter().for_each(|posted| posted.answer(Err(error.clone())));
            }
        }
    }

    fn grouped(&self, posted: Vec<Posted>) -> Vec<Group> {
        let mut places: HashMap<WorkflowId, usize> = HashMap::with_capacity(posted.len());
        let mut groups: Vec<Group> = Vec::with_capacity(posted.len());
        let mut states = self.states();
        for posted in posted {
            let id = posted.workflow;
            let place = *places.entry(id).or_insert_with(|| {
                let entry = states.remove(&id).map(|(_, entry)| entry);
                groups.push(Group::new(id, entry));
                groups.len() - 1
            });
            groups[place].posted.push(posted);
        }
        groups
    }

    /// Plays and writes; returns what must be played again.
    async fn round(&self, engine: &Engine, mut groups: Vec<Group>) -> Vec<Group> {
        if let Err(error) = load_missing(engine, &mut groups).await {
            groups.into_iter().for_each(|group| group.fail(&error));
            return Vec::new();
        }
        let mut changes = Vec::with_capacity(groups.len());
        let mut written = Vec::with_capacity(groups.len());
        let mut again = Vec::new();
        for mut group in groups {
            match group.play(engine) {
                Some(change) => {
                    changes.push(change);
                    written.push(group);
                }
                // To do nothing, or to refuse, may be right only for a state that is gone.
                None if group.basis == Basis::Memory => {
                    group.forget();
                    again.push(group);
                }
                None => self.finish(engine, group, None),
            }
        }
        if changes.is_empty() {
            return again;
        }
        let applied = match engine.store().apply(self.partition, &changes).await {
            Ok(applied) => applied,
            Err(error @ StoreError::Unknown { .. }) => match recover(engine, &changes).await {
                Ok(applied) => applied,
                Err(_) => return fail_all(written, &error, again),
            },
            Err(error) => return fail_all(written, &error, again),
        };
        for ((mut group, change), applied) in written.into_iter().zip(changes).zip(applied) {
            match applied {
                Applied::Done => self.finish(engine, group, Some(&change)),
                Applied::KeyTaken(taken) => group.key_taken(taken),
                Applied::Conflict(state) => match group.rebuild(state) {
                    Ok(()) => again.push(group),
                    Err(error) => group.fail(&error),
                },
            }
        }
        again
    }

    /// Tells everybody, and keeps the state.
    fn finish(&self, engine: &Engine, mut group: Group, change: Option<&Change>) {
        if let Some(change) = change {
            publish(engine, &group, change);
            if let (Some(entry), Write::Put(put)) = (&mut group.entry, &change.write) {
                entry.keep_outputs(&put.results);
                group.answers.iter_mut().flatten().for_each(|answer| entry.fill_inputs(answer));
            }
        }
        for (posted, outcome) in group.posted.into_iter().zip(group.answers) {
            posted.answer(outcome);
        }
        let removed = change.is_some_and(|change| matches!(change.write, Write::Delete(_)));
        // Nothing much happens to a workflow that is over, and the memory is for others.
        if let Some(entry) = group.entry
            && !removed
            && entry.workflow.is_stored()
            && !entry.workflow.meta.status.is_over()
        {
            self.states().insert(group.id, entry);
        }
    }
}

fn fail_all(groups: Vec<Group>, error: &StoreError, others: Vec<Group>) -> Vec<Group> {
    groups.into_iter().for_each(|group| group.fail(error));
    others
}

fn publish(engine: &Engine, group: &Group, change: &Change) {
    match &change.write {
        Write::Put(put) => {
            engine.queues().change(&put.ready.remove, &put.ready.add);
            if let Some(entry) = &group.entry {
                let jobs = || {
                    let state = |(job, _): &(JobIndex, Vec<u8>)| (*job, entry.workflow.job(*job).state);
                    put.jobs.iter().map(state).collect()
                };
                engine.announce(group.id, || Notice { status: Some(entry.workflow.meta.status), jobs: jobs() });
                if let Some(timer) = entry.workflow.meta.timer {
                    engine.expect_by(timer);
                }
            }
        }
        Write::Delete(delete) => {
            engine.queues().change(&delete.ready, &[]);
            engine.announce(group.id, || Notice { status: None, jobs: Vec::new() });
        }
    }
}

/// What became of changes whose answer was lost: the writer of the stored state tells whether a change was applied.
async fn recover(engine: &Engine, changes: &[Change]) -> Result<Vec<Applied>, StoreError> {
    let ids: Vec<WorkflowId> = changes.iter().map(|change| change.workflow).collect();
    let stored = engine.store().load(&ids).await?;
    Ok(changes
        .iter()
        .zip(stored)
        .map(|(change, stored)| match (&change.write, stored) {
            (Write::Put(put), Some(stored)) if stored.state.meta == put.meta => Applied::Done,
            (Write::Delete(_), None) => Applied::Done,
            (_, stored) => Applied::Conflict(stored.map(|stored| stored.state)),
        })
        .collect())
}
