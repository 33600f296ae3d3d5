//! The requests of a group commit about one workflow, and their answers.

use std::cmp::Reverse;
use std::sync::Arc;

use super::answer::Answer;
use super::apply::Player;
use super::assign::Assignment;
use super::cached_workflow::{CacheValue, CachedWorkflow};
use super::request::{Envelope, Request, StartMode};
use crate::codec::change::{Change, Delete, NewerState, Stamp, StoredState};
use crate::engine::error::EngineError;
use crate::graph::Graph;
use crate::id::WorkflowId;
use crate::store::error::StoreError;
use crate::workflow::Workflow;

/// A batch has the requests of a group commit about one workflow, and the state of the workflow.
pub(super) struct WorkflowBatch {
    pub(super) id: WorkflowId,
    pub(super) posted: Vec<Envelope>,
    pub(super) entry: Option<Box<CachedWorkflow>>,
    /// The graph, if only the graph is cached.
    pub(super) graph: Option<Arc<Graph>>,
    /// Error of reading the state, if it cannot be read.
    pub(super) broken: Option<Box<StoreError>>,
    pub(super) basis: StateSource,
    /// Stamp of the write after which other servers may have changed the state in memory.
    pub(super) since: Option<Stamp>,
    /// Rows that may be in the store and should not, after a partial write.
    pub(super) strays: Option<Box<Delete>>,
    pub(super) answers: Vec<Result<Answer, EngineError>>,
    /// Jobs that go to waiting workers.
    pub(super) handed: Vec<Assignment>,
    /// Error that the store returned instead of an answer to the latest change. The change was not
    /// written.
    pub(super) refused: Option<Box<StoreError>>,
}

/// Source of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateSource {
    /// The cache. Another server may have changed the state since; only a write that succeeds
    /// proves that none did.
    Cache,
    /// The store, in this commit.
    Store,
    /// The store, later: the state, or the changes of other servers to the cached one, must be
    /// read.
    MustReload,
}

impl WorkflowBatch {
    pub(super) fn new(id: WorkflowId, kept: Option<CacheValue>) -> Self {
        let (entry, graph) = match kept {
            Some(CacheValue::State(entry)) => (Some(entry), None),
            Some(CacheValue::Graph(looked_at)) => (None, Some(looked_at.graph)),
            Some(CacheValue::Taken) | None => (None, None),
        };
        Self {
            id,
            // Usually there is one request. The default capacity of four would take a kilobyte.
            posted: Vec::with_capacity(1),
            entry,
            graph,
            broken: None,
            basis: StateSource::Cache,
            since: None,
            strays: None,
            answers: Vec::new(),
            handed: Vec::new(),
            refused: None,
        }
    }

    /// Whether the state must be read. A request that creates a workflow brings its state along.
    pub(super) fn needs_state(&self) -> bool {
        let creates = || {
            self.basis != StateSource::MustReload
                && matches!(self.posted[0].request, Request::Create { .. })
        };
        self.entry.is_none() && !creates()
    }

    /// Sort key of the batches of one commit: creations come last, the most urgent of them first.
    pub(super) fn urgency(&self) -> (bool, Reverse<u8>) {
        match &self.posted[0].request {
            Request::Create { graph, .. } => {
                let most = graph.jobs.iter().map(|job| job.priority).max().unwrap_or(0);
                (true, Reverse(most))
            }
            _ => (false, Reverse(0)),
        }
    }

    /// Applies the requests, and returns the change to write, if any.
    pub(super) fn play(&mut self, player: &Player<'_>) -> Option<Change> {
        self.answers.clear();
        self.answers.reserve_exact(self.posted.len());
        for at in 0..self.posted.len() {
            self.begin(at, player);
            let outcome = match &mut self.entry {
                Some(entry) => player.apply(entry, &self.posted[at]),
                None => Err(match &self.broken {
                    Some(error) => StoreError::clone(error).into(),
                    None => EngineError::NoWorkflow { workflow: self.id },
                }),
            };
            self.answers.push(outcome);
        }
        let entry = self.entry.as_mut()?;
        if let Some(strays) = self.strays.clone() {
            entry.workflow.rewrite_rows(*strays);
        }
        let now = self.posted[0].now;
        self.handed = player.assign_to_waiting(entry, now);
        entry
            .workflow
            .change(fastrand::u32(..), player.store.style(), now)
    }

    /// Creates the workflow if it does not exist and the request creates it.
    fn begin(&mut self, at: usize, player: &Player<'_>) {
        let posted = &self.posted[at];
        if let (
            Request::Create {
                graph,
                begin,
                created_at,
            },
            None,
        ) = (&posted.request, &self.entry)
        {
            let mut workflow = Workflow::new(self.id, Arc::clone(graph), *created_at);
            if let StartMode::As(imported) = begin {
                workflow.take_over(imported, player.context.retention, posted.now);
            }
            self.entry = Some(CachedWorkflow::new(workflow));
            self.basis = StateSource::Store;
        }
    }

    /// Splits off the later half of the requests, and keeps at least `min_kept`. No request may
    /// have an answer yet. All are kept after an error of the store, since smaller writes would not
    /// avoid it.
    pub(super) fn split_off_half(&mut self, few: usize) -> Vec<Envelope> {
        debug_assert!(self.answers.is_empty());
        let kept = if self.refused.is_some() {
            self.posted.len()
        } else {
            self.posted.len().div_ceil(2).max(few)
        };
        self.posted.split_off(kept.min(self.posted.len()))
    }

    /// Replaces the state by the one that the store has.
    pub(super) fn rebuild(&mut self, state: Option<StoredState>) -> Result<(), StoreError> {
        let entry = self.entry.take();
        self.basis = StateSource::Store;
        self.take_back();
        if let (Some(state), Some(entry)) = (state, entry) {
            let graph = Arc::clone(&entry.workflow.graph);
            let workflow = Workflow::read_state(self.id, graph, &state)?;
            // Outputs are dropped: another server wrote, and their jobs may have run again.
            self.entry = Some(entry.rebuilt(workflow));
        }
        Ok(())
    }

    /// Updates the state with the changes that other servers made to it.
    pub(super) fn catch_up(&mut self, later: &NewerState) -> Result<(), StoreError> {
        self.take_back();
        let Some(entry) = &mut self.entry else {
            return Ok(());
        };
        if entry.catch_up(later)? {
            self.basis = StateSource::Store
        } else {
            self.forget()
        }
        Ok(())
    }

    /// Bytes of the meta record that the store has.
    pub(super) fn stored_meta(&self) -> Option<Vec<u8>> {
        self.entry
            .as_ref()?
            .workflow
            .stored_meta()
            .map(<[u8]>::to_vec)
    }

    /// Marks the state as possibly outdated. The store has one, which is read again.
    pub(super) fn must_reload(&mut self) {
        self.outdated(
            self.entry
                .as_ref()
                .and_then(|entry| entry.workflow.stored_stamp()),
        );
    }

    /// Marks the state as changed by other servers after `stale_since`, the last write that this
    /// server knows. A small workflow is read again. Of a large one, only the changes are read.
    pub(super) fn outdated(&mut self, since: Option<Stamp>) {
        self.take_back();
        self.basis = StateSource::MustReload;
        self.since = since;
        match &self.entry {
            Some(entry) if since.is_some() && entry.workflow.is_large() => {}
            // The graph is that of a request that creates, and the stored workflow may have another
            // one.
            _ if since.is_none() => self.entry = None,
            _ => self.forget(),
        }
    }

    /// Drops the state, and keeps the graph.
    pub(super) fn forget(&mut self) {
        self.graph = self.entry.take().map(|entry| entry.workflow.graph);
    }

    /// Drops the leases of the answers, which were not written. Waiting workers are woken and claim
    /// for themselves.
    fn take_back(&mut self) {
        for Assignment { leased, .. } in &mut self.handed {
            leased
                .iter_mut()
                .for_each(|leased| drop(leased.undelivered.mark_delivered()));
        }
        self.handed.clear();
        for (posted, answer) in self.posted.iter().zip(self.answers.drain(..)) {
            let Ok(mut answer) = answer else { continue };
            answer
                .leased
                .iter_mut()
                .for_each(|leased| drop(leased.undelivered.mark_delivered()));
            if let Request::Report {
                hand_over: Some(hand_over),
                ..
            } = &posted.request
            {
                hand_over.give_back(answer.leased.len());
            }
        }
    }

    pub(super) fn fail(mut self, error: &StoreError) {
        self.take_back();
        for posted in self.posted {
            posted.answer(Err(error.clone().into()));
        }
    }

    pub(super) fn key_taken(mut self, taken: WorkflowId) {
        self.take_back();
        for posted in self.posted {
            posted.answer(Ok(Answer {
                existing: Some(taken),
                ..Answer::default()
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::post::reply_set::ReplySet;
    use crate::id::{JobIndex, Partition};
    use crate::time::Timestamp;
    use crate::transition::event::Intent;

    #[test]
    fn who_loses_has_ever_less_to_do_and_forgets_nothing() {
        let workflow = WorkflowId::new(Timestamp::default(), Partition(0), 1);
        let mut group = WorkflowBatch::new(workflow, None);
        let posted = |token: u64| {
            let expires = Timestamp::default();
            let intent = Intent::GoOn;
            let request = Request::Extend {
                job: JobIndex(0),
                token,
                expires,
                intent,
            };
            Envelope {
                workflow,
                request,
                now: Timestamp::default(),
                answer: ReplySet::new(1).reply(0),
            }
        };
        group.posted = (0..50).map(posted).collect();
        let mut left = Vec::new();
        for (kept, taken) in [(25, 25), (16, 9), (16, 0)] {
            let out = group.split_off_half(16);
            assert_eq!((group.posted.len(), out.len()), (kept, taken));
            left.splice(0..0, out);
        }
        left.splice(0..0, group.posted);
        let token = |posted: &Envelope| match posted.request {
            Request::Extend { token, .. } => token,
            _ => panic!("it was not posted"),
        };
        assert!(left.iter().map(token).eq(0..50));
    }
}
