//! The requests of a group commit about one workflow, and their answers.

use std::cmp::Reverse;
use std::sync::Arc;

use super::answer::{Answer, LeasedJob};
use super::apply::Applier;
use super::assign::Assignment;
use super::cache::cached_workflow::{CacheValue, CachedWorkflow};
use super::request::{Envelope, Request, StartMode};
use crate::codec::{Change, Delete, NewerState, Stamp, StoreError, StoredState};
use crate::engine::context::error::EngineError;
use crate::graph::Graph;
use crate::machine::Workflow;
use crate::model::WorkflowId;

/// A batch has the requests of a group commit about one workflow, and the state of the workflow.
pub(super) struct WorkflowBatch {
    pub(super) id: WorkflowId,
    pub(super) envelopes: Vec<Envelope>,
    pub(super) cached: Option<Box<CachedWorkflow>>,
    /// The graph, if only the graph is cached.
    pub(super) graph: Option<Arc<Graph>>,
    /// Error of reading the state, if it cannot be read.
    pub(super) load_error: Option<Box<StoreError>>,
    pub(super) source: StateSource,
    /// Stamp of the write after which other servers may have changed the state in memory.
    pub(super) stale_since: Option<Stamp>,
    /// Rows that may be in the store and should not, after a partial write.
    pub(super) orphan_rows: Option<Box<Delete>>,
    pub(super) answers: Vec<Result<Answer, EngineError>>,
    /// Jobs that go to waiting workers.
    pub(super) assignments: Vec<Assignment>,
    /// Error that the store returned instead of an answer to the latest change. The change was not
    /// written.
    pub(super) unanswered: Option<Box<StoreError>>,
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
    pub(super) fn new(id: WorkflowId, cached: Option<CacheValue>) -> Self {
        let (cached, graph) = match cached {
            Some(CacheValue::State(entry)) => (Some(entry), None),
            Some(CacheValue::Graph(cached_graph)) => (None, Some(cached_graph.graph)),
            Some(CacheValue::InUse) | None => (None, None),
        };
        Self {
            id,
            // Usually there is one request. The default capacity of four would take a kilobyte.
            envelopes: Vec::with_capacity(1),
            cached,
            graph,
            load_error: None,
            source: StateSource::Cache,
            stale_since: None,
            orphan_rows: None,
            answers: Vec::new(),
            assignments: Vec::new(),
            unanswered: None,
        }
    }

    /// Whether the state must be read. A request that creates a workflow brings its state along.
    pub(super) fn needs_state(&self) -> bool {
        let creates = || {
            self.source != StateSource::MustReload
                && matches!(self.envelopes[0].request, Request::Create { .. })
        };
        self.cached.is_none() && !creates()
    }

    /// Sort key of the batches of one commit: creations come last, the most urgent of them first.
    pub(super) fn urgency(&self) -> (bool, Reverse<u8>) {
        match &self.envelopes[0].request {
            Request::Create { graph, .. } => {
                let max_priority = graph.jobs.iter().map(|job| job.priority).max().unwrap_or(0);
                (true, Reverse(max_priority))
            }
            _ => (false, Reverse(0)),
        }
    }

    /// Applies the requests, and returns the change to write, if any.
    pub(super) fn apply_requests(&mut self, applier: &Applier<'_>) -> Option<Change> {
        self.answers.clear();
        self.answers.reserve_exact(self.envelopes.len());
        for index in 0..self.envelopes.len() {
            self.create_if_missing(index, applier);
            let outcome = match &mut self.cached {
                Some(entry) => applier.apply(entry, &self.envelopes[index]),
                None => Err(self.absence_error()),
            };
            self.answers.push(outcome);
        }
        let entry = self.cached.as_mut()?;
        if let Some(orphan_rows) = self.orphan_rows.clone() {
            entry.workflow.rewrite_rows(*orphan_rows);
        }
        let now = self.envelopes[0].now;
        self.assignments = applier.assign_to_waiting(entry, now);
        entry
            .workflow
            .change(fastrand::u32(..), applier.store.write_options(), now)
    }

    /// The error for requests to a state that is not in memory.
    fn absence_error(&self) -> EngineError {
        match &self.load_error {
            Some(error) => StoreError::clone(error).into(),
            None => EngineError::NoWorkflow { workflow: self.id },
        }
    }

    /// Creates the workflow if it does not exist and the request creates it.
    fn create_if_missing(&mut self, index: usize, applier: &Applier<'_>) {
        let envelope = &self.envelopes[index];
        if let (
            Request::Create {
                graph,
                start_mode,
                created_at,
            },
            None,
        ) = (&envelope.request, &self.cached)
        {
            let mut workflow = Workflow::new(self.id, Arc::clone(graph), *created_at);
            if let StartMode::As(imported) = start_mode {
                workflow.adopt(imported, applier.context.retention, envelope.now);
            }
            self.cached = Some(CachedWorkflow::new(workflow));
            self.source = StateSource::Store;
        }
    }

    /// Splits off the later half of the requests, and keeps at least `min_kept`. No request may
    /// have an answer yet. All are kept after an error of the store, since smaller writes would not
    /// avoid it.
    pub(super) fn split_off_half(&mut self, min_kept: usize) -> Vec<Envelope> {
        debug_assert!(self.answers.is_empty());
        let kept = if self.unanswered.is_some() {
            self.envelopes.len()
        } else {
            self.envelopes.len().div_ceil(2).max(min_kept)
        };
        self.envelopes.split_off(kept.min(self.envelopes.len()))
    }

    /// Replaces the state by the one that the store has.
    pub(super) fn rebuild(&mut self, state: Option<StoredState>) -> Result<(), StoreError> {
        let entry = self.cached.take();
        self.source = StateSource::Store;
        self.discard_leases();
        if let (Some(state), Some(entry)) = (state, entry) {
            let graph = Arc::clone(&entry.workflow.graph);
            let workflow = Workflow::read_state(self.id, graph, &state)?;
            // Outputs are dropped: another server wrote, and their jobs may have run again.
            self.cached = Some(entry.with_state(workflow));
        }
        Ok(())
    }

    /// Updates the state with the changes that other servers made to it.
    pub(super) fn rebase(&mut self, newer: &NewerState) -> Result<(), StoreError> {
        self.discard_leases();
        let Some(entry) = &mut self.cached else {
            return Ok(());
        };
        if entry.rebase(newer)? {
            self.source = StateSource::Store
        } else {
            self.drop_state()
        }
        Ok(())
    }

    /// Bytes of the meta record that the store has.
    pub(super) fn stored_meta(&self) -> Option<Vec<u8>> {
        self.cached
            .as_ref()?
            .workflow
            .stored_meta()
            .map(<[u8]>::to_vec)
    }

    /// Marks the state as possibly outdated. The store has one, which is read again.
    pub(super) fn must_reload(&mut self) {
        self.mark_stale(
            self.cached
                .as_ref()
                .and_then(|entry| entry.workflow.stored_stamp()),
        );
    }

    /// Marks the state as changed by other servers after `stale_since`, the last write that this
    /// server knows. A small workflow is read again. Of a large one, only the changes are read.
    pub(super) fn mark_stale(&mut self, stale_since: Option<Stamp>) {
        self.discard_leases();
        self.source = StateSource::MustReload;
        self.stale_since = stale_since;
        match &self.cached {
            Some(entry) if stale_since.is_some() && entry.workflow.is_large() => {}
            // The graph is that of a request that creates, and the stored workflow may have another
            // one.
            _ if stale_since.is_none() => self.cached = None,
            _ => self.drop_state(),
        }
    }

    /// Drops the state, and keeps the graph.
    pub(super) fn drop_state(&mut self) {
        self.graph = self.cached.take().map(|entry| entry.workflow.graph);
    }

    /// Drops the leases of the answers, which were not written. Waiting workers are woken and claim
    /// for themselves.
    fn discard_leases(&mut self) {
        for assignment in self.assignments.drain(..) {
            discard(assignment.leased);
        }
        for (envelope, answer) in self.envelopes.iter().zip(self.answers.drain(..)) {
            let Ok(answer) = answer else { continue };
            let number = answer.leased.len();
            discard(answer.leased);
            if let Request::Report {
                claim: Some(claim), ..
            } = &envelope.request
            {
                claim.return_unused(number);
            }
        }
    }

    pub(super) fn fail(mut self, error: &StoreError) {
        self.discard_leases();
        for envelope in self.envelopes {
            envelope.send_reply(Err(error.clone().into()));
        }
    }

    pub(super) fn answer_key_taken(mut self, existing: WorkflowId) {
        self.discard_leases();
        for envelope in self.envelopes {
            envelope.send_reply(Ok(Answer {
                existing: Some(existing),
                ..Answer::default()
            }));
        }
    }
}

/// Drops leases that were not written.
fn discard(leased: Vec<LeasedJob>) {
    for mut leased in leased {
        leased.undelivered.mark_delivered();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::actor::reply_set::ReplySet;
    use crate::machine::Intent;
    use crate::model::{JobIndex, Partition, Timestamp};

    #[test]
    fn halved_batches_keep_the_order_of_requests() {
        let workflow = WorkflowId::new(Timestamp::default(), Partition(0), 1);
        let mut batch = WorkflowBatch::new(workflow, None);
        let envelope = |token: u64| {
            let expires = Timestamp::default();
            let intent = Intent::Continue;
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
                reply: ReplySet::new(1).sender(0),
            }
        };
        batch.envelopes = (0..50).map(envelope).collect();
        let mut split_off = Vec::new();
        for (kept, taken) in [(25, 25), (16, 9), (16, 0)] {
            let out = batch.split_off_half(16);
            assert_eq!((batch.envelopes.len(), out.len()), (kept, taken));
            split_off.splice(0..0, out);
        }
        split_off.splice(0..0, batch.envelopes);
        let token = |envelope: &Envelope| match envelope.request {
            Request::Extend { token, .. } => token,
            _ => panic!("it was not posted"),
        };
        assert!(split_off.iter().map(token).eq(0..50));
    }
}
