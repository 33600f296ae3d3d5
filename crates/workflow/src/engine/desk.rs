//! Where the requests about the workflows of one partition are served, in rounds: all that waits is played on the states in memory,
//! and what changed is written with one call of the store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hashbrown::HashMap;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use tokio::sync::oneshot;

use super::error::EngineError;
use super::play::{Answer, Begin, Request, play};
use super::{Engine, Notice};
use crate::change::{Applied, Change, ResultField, StoredState, Write};
use crate::id::{JobIndex, Partition, WorkflowId};
use crate::store::StoreError;
use crate::time::Timestamp;
use crate::workflow::Workflow;

/// Requests of one round: enough to share a write, few enough that the first is not kept waiting for the last.
const ROUND: usize = 256;
/// Requests that may wait; each is held by a caller.
const WAITING: usize = 65_536;
/// How often a round is played again after others wrote first.
const ATTEMPTS: usize = 16;
/// Outputs of one workflow that are kept for the jobs after them.
const KEPT_OUTPUTS: usize = 64 * 1024;

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

/// A request and who wants to know.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) workflow: WorkflowId,
    pub(crate) request: Request,
    pub(crate) now: Timestamp,
    pub(crate) answer: oneshot::Sender<Result<Answer, EngineError>>,
}

/// A workflow in memory, and the latest outputs of its jobs.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) workflow: Workflow,
    pub(crate) outputs: HashMap<JobIndex, Bytes>,
    output_bytes: usize,
    weight: u64,
}

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<WorkflowId, Box<Entry>> for Weight {
    fn weight(&self, _: &WorkflowId, entry: &Box<Entry>) -> u64 {
        entry.weight + entry.output_bytes as u64
    }
}

/// The requests of a round that concern one workflow.
struct Group {
    id: WorkflowId,
    posted: Vec<Posted>,
    entry: Option<Box<Entry>>,
    /// Why its state cannot be read.
    broken: Option<StoreError>,
    basis: Basis,
    answers: Vec<Result<Answer, EngineError>>,
}

/// Where the state of a round comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// An earlier round: another server may have changed it since. Only a write proves that nobody did.
    Memory,
    /// The store, just now.
    Store,
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
                group.posted.into_iter().for_each(|posted| answer(posted, Err(error.clone())));
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
            answer(posted, outcome);
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

fn answer(posted: Posted, outcome: Result<Answer, EngineError>) {
    // A caller that left took nothing with it: a job it would have got gives itself back.
    let _left = posted.answer.send(outcome);
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

/// Reads the states that are not in memory; a request that creates its workflow brings it.
async fn load_missing(engine: &Engine, groups: &mut [Group]) -> Result<(), StoreError> {
    let missing: Vec<usize> = (0..groups.len()).filter(|&at| groups[at].needs_state()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let ids: Vec<WorkflowId> = missing.iter().map(|&at| groups[at].id).collect();
    let loaded = engine.store().load(&ids).await?;
    for (at, stored) in missing.into_iter().zip(loaded) {
        let group = &mut groups[at];
        group.basis = Basis::Store;
        let Some(stored) = stored else { continue };
        match Workflow::read(group.id, &stored) {
            Ok(workflow) => group.entry = Some(Entry::new(workflow, stored.graph.len())),
            Err(error) => group.broken = Some(error),
        }
    }
    Ok(())
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

impl Group {
    fn new(id: WorkflowId, entry: Option<Box<Entry>>) -> Self {
        Self { id, posted: Vec::new(), entry, broken: None, basis: Basis::Memory, answers: Vec::new() }
    }

    fn needs_state(&self) -> bool {
        self.entry.is_none() && !matches!(self.posted[0].request, Request::Create { .. })
    }

    /// Plays the requests, and returns what to write.
    fn play(&mut self, engine: &Engine) -> Option<Change> {
        self.answers.clear();
        for posted in &self.posted {
            if let (Request::Create { graph, begin, created_at }, None) = (&posted.request, &self.entry) {
                let mut workflow = Workflow::new(self.id, Arc::clone(graph), *created_at);
                if let Begin::As(imported) = begin {
                    workflow.take_over(imported, engine.retention(), posted.now);
                }
                self.entry = Some(Entry::new(workflow, 0));
                self.basis = Basis::Store;
            }
            let outcome = match &mut self.entry {
                Some(entry) => play(engine, entry, &posted.request, posted.now),
                None => Err(self.broken.clone().map_or(EngineError::NoWorkflow { workflow: self.id }, Into::into)),
            };
            self.answers.push(outcome);
        }
        let entry = self.entry.as_mut()?;
        let change = entry.workflow.change(fastrand::u32(..))?;
        if let (0, Write::Put(put)) = (entry.weight, &change.write) {
            entry.weigh(put.birth.as_ref().map_or(0, |birth| birth.graph.len()));
        }
        Some(change)
    }

    /// Goes back to what the store has.
    fn rebuild(&mut self, state: Option<StoredState>) -> Result<(), StoreError> {
        let entry = self.entry.take();
        self.basis = Basis::Store;
        self.take_back();
        if let (Some(state), Some(entry)) = (state, entry) {
            let graph = Arc::clone(&entry.workflow.graph);
            let workflow = Workflow::read_state(self.id, graph, &state)?;
            // Outputs are not kept: whoever wrote may have run their jobs again.
            self.entry =
                Some(Box::new(Entry { workflow, outputs: HashMap::new(), output_bytes: 0, weight: entry.weight }));
        }
        Ok(())
    }

    /// Goes back to before the round, knowing nothing.
    fn forget(&mut self) {
        self.entry = None;
        self.take_back();
    }

    /// Gives back what the answers promised.
    fn take_back(&mut self) {
        for (posted, answer) in self.posted.iter().zip(self.answers.drain(..)) {
            let Ok(mut answer) = answer else { continue };
            answer.leased.iter_mut().for_each(|leased| leased.undelivered.settle());
            if let Request::Report { hand_over: Some(hand_over), .. } = &posted.request {
                hand_over.give_back(answer.leased.len());
            }
        }
    }

    fn fail(mut self, error: &StoreError) {
        self.take_back();
        for posted in self.posted {
            answer(posted, Err(error.clone().into()));
        }
    }

    fn key_taken(mut self, taken: WorkflowId) {
        self.take_back();
        for posted in self.posted {
            answer(posted, Ok(Answer { existing: Some(taken), ..Answer::default() }));
        }
    }
}

impl Entry {
    fn new(workflow: Workflow, graph_bytes: usize) -> Box<Self> {
        let mut entry = Self { workflow, outputs: HashMap::new(), output_bytes: 0, weight: 0 };
        if graph_bytes > 0 {
            entry.weigh(graph_bytes);
        }
        Box::new(entry)
    }

    /// An estimate from the encoded size of the graph; texts are a little larger in memory, jobs have fixed parts.
    fn weigh(&mut self, graph_bytes: usize) {
        self.weight = (512 + 2 * graph_bytes + 400 * self.workflow.jobs.len()) as u64;
    }

    /// What parents returned in the same round is known now that it is written.
    fn fill_inputs(&self, answer: &mut Answer) {
        for (parent, output) in answer.leased.iter_mut().flat_map(|leased| &mut leased.inputs) {
            if output.is_none() {
                *output = self.outputs.get(parent).cloned();
            }
        }
    }

    fn keep_outputs(&mut self, results: &[(ResultField, Vec<u8>)]) {
        for (field, value) in results {
            if let ResultField::Output(job) = field {
                if let Some(old) = self.outputs.remove(job) {
                    self.output_bytes -= old.len();
                }
                if self.output_bytes + value.len() <= KEPT_OUTPUTS {
                    self.output_bytes += value.len();
                    self.outputs.insert(*job, Bytes::from(value.clone()));
                }
            }
        }
    }
}
