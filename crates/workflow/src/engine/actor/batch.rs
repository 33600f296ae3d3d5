//! The requests of a round about one workflow, and their answers.

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

/// The requests of a round about one workflow.
pub(super) struct WorkflowBatch {
    pub(super) id: WorkflowId,
    pub(super) posted: Vec<Envelope>,
    pub(super) entry: Option<Box<CachedWorkflow>>,
    /// Its graph, if only that is known.
    pub(super) graph: Option<Arc<Graph>>,
    /// Why its state cannot be read.
    pub(super) broken: Option<Box<StoreError>>,
    pub(super) basis: StateSource,
    /// The write since which others may have changed the state in memory.
    pub(super) since: Option<Stamp>,
    /// What may be in the store and should not, if a write stopped half way.
    pub(super) strays: Option<Box<Delete>>,
    pub(super) answers: Vec<Result<Answer, EngineError>>,
    /// Jobs that go to workers that wait.
    pub(super) handed: Vec<Assignment>,
    /// Why the store did not say that the latest change was written. It was not.
    pub(super) refused: Option<Box<StoreError>>,
}

/// Where a state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateSource {
    /// An earlier round. Another server may have changed it since; only a write that succeeds proves that none did.
    Cache,
    /// From the store, just now.
    Store,
    /// The store has one, which must be read, or at least what others have made of the one in memory.
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
            // Mostly one: a few would be a kilobyte.
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

    /// Whether its state is not in memory. A request that creates a workflow contains its state.
    pub(super) fn needs_state(&self) -> bool {
        let creates = || {
            self.basis != StateSource::MustReload
                && matches!(self.posted[0].request, Request::Create { .. })
        };
        self.entry.is_none() && !creates()
    }

    /// Where it stands among groups that are played together: creations after all others, and among these the most urgent first.
    pub(super) fn urgency(&self) -> (bool, Reverse<u8>) {
        match &self.posted[0].request {
            Request::Create { graph, .. } => {
                let most = graph.jobs.iter().map(|job| job.priority).max().unwrap_or(0);
                (true, Reverse(most))
            }
            _ => (false, Reverse(0)),
        }
    }

    /// Applies the requests, and returns what to write.
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

    /// Creates the workflow if it does not exist and a request creates it.
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

    /// Takes out the second half of its requests, if there are more than `few`. None of them has an answer.
    pub(super) fn split_off_half(&mut self, few: usize) -> Vec<Envelope> {
        debug_assert!(self.answers.is_empty());
        let kept = if self.refused.is_some() {
            self.posted.len()
        } else {
            self.posted.len().div_ceil(2).max(few)
        };
        self.posted.split_off(kept.min(self.posted.len()))
    }

    /// Returns to the state that the store has.
    pub(super) fn rebuild(&mut self, state: Option<StoredState>) -> Result<(), StoreError> {
        let entry = self.entry.take();
        self.basis = StateSource::Store;
        self.take_back();
        if let (Some(state), Some(entry)) = (state, entry) {
            let graph = Arc::clone(&entry.workflow.graph);
            let workflow = Workflow::read_state(self.id, graph, &state)?;
            // Outputs are not kept: another server wrote, and their jobs may have run again.
            self.entry = Some(entry.rebuilt(workflow));
        }
        Ok(())
    }

    /// Returns to the state that the store has, which others have made of the one in memory.
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

    /// The bytes of the meta that the store has.
    pub(super) fn stored_meta(&self) -> Option<Vec<u8>> {
        self.entry
            .as_ref()?
            .workflow
            .stored_meta()
            .map(<[u8]>::to_vec)
    }

    /// Its state, which is in the store, may be outdated: it is read again.
    pub(super) fn must_reload(&mut self) {
        self.outdated(
            self.entry
                .as_ref()
                .and_then(|entry| entry.workflow.stored_stamp()),
        );
    }

    /// Others have changed its state since this write, after which nothing was written here. It is read again, of a large workflow what they
    /// have changed.
    pub(super) fn outdated(&mut self, since: Option<Stamp>) {
        self.take_back();
        self.basis = StateSource::MustReload;
        self.since = since;
        match &self.entry {
            Some(entry) if since.is_some() && entry.workflow.is_large() => {}
            // Its graph is that of a request, and another one may be there.
            _ if since.is_none() => self.entry = None,
            _ => self.forget(),
        }
    }

    /// Forgets the state, and keeps the graph.
    pub(super) fn forget(&mut self) {
        self.graph = self.entry.take().map(|entry| entry.workflow.graph);
    }

    /// Gives back the jobs that the answers contain. Workers that wait look for themselves.
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
