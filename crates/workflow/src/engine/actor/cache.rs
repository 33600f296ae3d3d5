//! The cache of workflow states, of all partitions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::{DefaultHashBuilder, HashMap};
use quick_cache::Lifecycle;
use quick_cache::unsync::Cache;

use super::batch::WorkflowBatch;
use super::cached_workflow::{CacheValue, CacheWeigher, CachedWorkflow};
use super::request::Envelope;
use crate::graph::Graph;
use crate::graph::interner::GraphInterner;
use crate::id::WorkflowId;

type Entries = Cache<WorkflowId, CacheValue, CacheWeigher, DefaultHashBuilder, Collect>;

/// States of recently used workflows, and graphs that were read, within one bound in bytes. One
/// workflow may take nearly all of it.
#[derive(Debug)]
pub(crate) struct StateCache {
    entries: Mutex<Entries>,
    pub(crate) shapes: GraphInterner,
}

/// Collects evicted values, so that they are freed after the lock is released.
#[derive(Debug, Clone)]
struct Collect;

impl Lifecycle<WorkflowId, CacheValue> for Collect {
    type RequestState = Vec<CacheValue>;

    fn on_evict(&self, evicted: &mut Vec<CacheValue>, _: WorkflowId, kept: CacheValue) {
        if !matches!(kept, CacheValue::Taken) {
            evicted.push(kept);
        }
    }
}

impl StateCache {
    /// Creates a cache of at most `max_bytes` bytes.
    pub(crate) fn new(memory: u64) -> Self {
        /// Bytes that a small workflow takes, about. The quotient is the expected number of
        /// entries.
        const SMALL: u64 = 2_048;
        let number = (memory / SMALL) as usize;
        let entries = Cache::with(
            number,
            memory,
            CacheWeigher,
            DefaultHashBuilder::default(),
            Collect,
        );
        Self {
            entries: Mutex::new(entries),
            shapes: GraphInterner::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached graph of a workflow.
    pub(crate) fn graph(&self, id: WorkflowId) -> Option<Arc<Graph>> {
        self.entries()
            .get(&id)
            .and_then(|kept| kept.graph().cloned())
    }

    /// Caches a graph that was read, unless the workflow is cached already.
    pub(crate) fn keep_graph(&self, id: WorkflowId, graph: &Arc<Graph>) {
        let mut entries = self.entries();
        if entries.get(&id).is_none() {
            let mut evicted = Vec::new();
            entries.insert_with_lifecycle(id, CacheValue::looked_at(graph), &mut evicted);
            drop(entries);
            drop(evicted);
        }
    }

    /// Groups requests by workflow, and takes the cached states of these workflows out.
    pub(super) fn take(&self, posted: Vec<Envelope>) -> Vec<WorkflowBatch> {
        let mut places: HashMap<WorkflowId, usize> = HashMap::with_capacity(posted.len());
        let mut groups: Vec<WorkflowBatch> = Vec::with_capacity(posted.len());
        let mut entries = self.entries();
        for posted in posted {
            let id = posted.workflow;
            let place = *places.entry(id).or_insert_with(|| {
                let kept = entries
                    .get_mut(&id)
                    .map(|mut kept| std::mem::replace(&mut *kept, CacheValue::Taken));
                groups.push(WorkflowBatch::new(id, kept));
                groups.len() - 1
            });
            groups[place].posted.push(posted);
        }
        groups
    }

    /// Caches a state, unless the workflow has ended.
    pub(super) fn keep(&self, id: WorkflowId, entry: Box<CachedWorkflow>) {
        // Ended workflows are rarely used. The memory is for the others.
        if !entry.workflow.is_stored() || entry.workflow.meta().status.is_over() {
            return self.give_up(id);
        }
        let mut evicted = Vec::new();
        self.entries()
            .insert_with_lifecycle(id, CacheValue::State(entry), &mut evicted);
        drop(evicted);
    }

    /// Removes the placeholder of a workflow whose state was taken out.
    pub(super) fn give_up(&self, id: WorkflowId) {
        self.entries()
            .remove_if(&id, |kept| matches!(kept, CacheValue::Taken));
    }
}
