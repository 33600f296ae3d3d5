//! The requests of a round about one workflow, and their answers.

use std::sync::Arc;

use super::answer::Answer;
use super::entry::Entry;
use super::play::Player;
use super::request::{Begin, Posted, Request};
use crate::engine::error::EngineError;
use crate::id::WorkflowId;
use crate::record::change::{Change, Delete, Later, StoredState};
use crate::store::error::StoreError;
use crate::workflow::Workflow;

/// The requests of a round about one workflow.
pub(super) struct Group {
    pub(super) id: WorkflowId,
    pub(super) posted: Vec<Posted>,
    pub(super) entry: Option<Box<Entry>>,
    /// Why its state cannot be read.
    pub(super) broken: Option<StoreError>,
    pub(super) basis: Basis,
    /// What may be in the store and should not, if a write stopped half way.
    pub(super) strays: Option<Delete>,
    pub(super) answers: Vec<Result<Answer, EngineError>>,
    /// Why the store did not say that the latest change was written. It was not.
    pub(super) refused: Option<StoreError>,
}

/// Where a state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// An earlier round. Another server may have changed it since; only a write that succeeds proves that none did.
    Memory,
    /// From the store, just now.
    Store,
}

impl Group {
    pub(super) fn new(id: WorkflowId, entry: Option<Box<Entry>>) -> Self {
        Self {
            id,
            // Mostly one: a few would be a kilobyte.
            posted: Vec::with_capacity(1),
            entry,
            broken: None,
            basis: Basis::Memory,
            strays: None,
            answers: Vec::new(),
            refused: None,
        }
    }

    pub(super) fn needs_state(&self) -> bool {
        self.entry.is_none() && !matches!(self.posted[0].request, Request::Create { .. })
    }

    /// Applies the requests, and returns what to write.
    pub(super) fn play(&mut self, player: &Player<'_>) -> Option<Change> {
        self.answers.clear();
        self.answers.reserve_exact(self.posted.len());
        for at in 0..self.posted.len() {
            self.begin(at, player);
            let outcome = match &mut self.entry {
                Some(entry) => player.play(entry, &self.posted[at]),
                None => Err(self.broken.clone().map_or(EngineError::NoWorkflow { workflow: self.id }, Into::into)),
            };
            self.answers.push(outcome);
        }
        let entry = self.entry.as_mut()?;
        if let Some(strays) = self.strays.clone() {
            entry.workflow.mend(strays);
        }
        let now = self.posted[0].now;
        let mut change = entry.workflow.change(fastrand::u32(..), player.store.style(), now)?;
        if player.store.has_mixed_rows() {
            change.remove_rows_of_all_formats();
        }
        Some(change)
    }

    /// Creates the workflow if it does not exist and a request creates it.
    fn begin(&mut self, at: usize, player: &Player<'_>) {
        let posted = &self.posted[at];
        if let (Request::Create { graph, begin, created_at }, None) = (&posted.request, &self.entry) {
            let mut workflow = Workflow::new(self.id, Arc::clone(graph), *created_at);
            if let Begin::As(imported) = begin {
                workflow.take_over(imported, player.context.retention, posted.now);
            }
            self.entry = Some(Entry::new(workflow));
            self.basis = Basis::Store;
        }
    }

    /// Returns to the state that the store has.
    pub(super) fn rebuild(&mut self, state: Option<StoredState>) -> Result<(), StoreError> {
        let entry = self.entry.take();
        self.basis = Basis::Store;
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
    pub(super) fn catch_up(&mut self, later: &Later) -> Result<(), StoreError> {
        self.take_back();
        let Some(entry) = &mut self.entry else { return Ok(()) };
        match entry.catch_up(later)? {
            true => self.basis = Basis::Store,
            false => self.entry = None,
        }
        Ok(())
    }

    /// The bytes of the meta that the store has.
    pub(super) fn stored_meta(&self) -> Option<Vec<u8>> {
        self.entry.as_ref()?.workflow.stored_meta().map(<[u8]>::to_vec)
    }

    /// Forgets the state, so that it is read again.
    pub(super) fn forget(&mut self) {
        self.entry = None;
        self.take_back();
    }

    /// Gives back the jobs that the answers contain.
    fn take_back(&mut self) {
        for (posted, answer) in self.posted.iter().zip(self.answers.drain(..)) {
            let Ok(mut answer) = answer else { continue };
            answer.leased.iter_mut().for_each(|leased| leased.undelivered.settle());
            if let Request::Report { hand_over: Some(hand_over), .. } = &posted.request {
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
            posted.answer(Ok(Answer { existing: Some(taken), ..Answer::default() }));
        }
    }
}
