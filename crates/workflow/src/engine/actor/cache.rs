//! The cache of workflow states, of all partitions.

pub(crate) mod cached_workflow;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::{DefaultHashBuilder, HashMap};
use quick_cache::Lifecycle;
use quick_cache::unsync::Cache;

use self::cached_workflow::{CacheValue, CacheWeigher, CachedWorkflow};
use super::batch::WorkflowBatch;
use super::request::Envelope;
use crate::graph::{Graph, GraphInterner};
use crate::model::WorkflowId;

type CacheTable =
    Cache<WorkflowId, CacheValue, CacheWeigher, DefaultHashBuilder, EvictionCollector>;

/// States of recently used workflows, and graphs that were read, within one bound in bytes. One
/// workflow may take nearly all of it.
#[derive(Debug)]
pub(crate) struct StateCache {
    table: Mutex<CacheTable>,
    pub(crate) interner: GraphInterner,
}

/// Collects evicted values, so that they are freed after the lock is released.
#[derive(Debug, Clone)]
struct EvictionCollector;

impl Lifecycle<WorkflowId, CacheValue> for EvictionCollector {
    type RequestState = Vec<CacheValue>;

    fn on_evict(&self, evicted: &mut Vec<CacheValue>, _: WorkflowId, value: CacheValue) {
        if !matches!(value, CacheValue::InUse) {
            evicted.push(value);
        }
    }
}

impl StateCache {
    /// Creates a cache of at most `max_bytes` bytes.
    pub(crate) fn new(max_bytes: u64) -> Self {
        /// Bytes that a small workflow takes, about. The quotient is the expected number of
        /// entries.
        const SMALL_WORKFLOW_BYTES: u64 = 2_048;
        let expected_entries = (max_bytes / SMALL_WORKFLOW_BYTES) as usize;
        let table = Cache::with(
            expected_entries,
            max_bytes,
            CacheWeigher,
            DefaultHashBuilder::default(),
            EvictionCollector,
        );
        Self {
            table: Mutex::new(table),
            interner: GraphInterner::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, CacheTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached graph of a workflow.
    pub(crate) fn graph(&self, id: WorkflowId) -> Option<Arc<Graph>> {
        self.table()
            .get(&id)
            .and_then(|value| value.graph().cloned())
    }

    /// Caches a graph that was read, unless the workflow is cached already.
    pub(crate) fn insert_graph(&self, id: WorkflowId, graph: &Arc<Graph>) {
        let mut table = self.table();
        if table.get(&id).is_none() {
            let mut evicted = Vec::new();
            table.insert_with_lifecycle(id, CacheValue::from_graph(graph), &mut evicted);
            drop(table);
            drop(evicted);
        }
    }

    /// Groups requests by workflow, and takes the cached states of these workflows out.
    pub(super) fn batches_for(&self, envelopes: Vec<Envelope>) -> Vec<WorkflowBatch> {
        let mut positions: HashMap<WorkflowId, usize> = HashMap::with_capacity(envelopes.len());
        let mut batches: Vec<WorkflowBatch> = Vec::with_capacity(envelopes.len());
        let mut table = self.table();
        for envelope in envelopes {
            let id = envelope.workflow;
            let position = *positions.entry(id).or_insert_with(|| {
                let cached = table
                    .get_mut(&id)
                    .map(|mut cached| std::mem::replace(&mut *cached, CacheValue::InUse));
                batches.push(WorkflowBatch::new(id, cached));
                batches.len() - 1
            });
            batches[position].envelopes.push(envelope);
        }
        batches
    }

    /// Caches a state, unless the workflow has ended.
    pub(super) fn insert(&self, id: WorkflowId, cached: Box<CachedWorkflow>) {
        // Ended workflows are rarely used. The memory is for the others.
        if !cached.workflow.is_stored() || cached.workflow.meta().status.is_over() {
            return self.remove_placeholder(id);
        }
        let mut evicted = Vec::new();
        self.table()
            .insert_with_lifecycle(id, CacheValue::State(cached), &mut evicted);
        drop(evicted);
    }

    /// Removes the placeholder of a workflow whose state was taken out.
    pub(super) fn remove_placeholder(&self, id: WorkflowId) {
        self.table()
            .remove_if(&id, |value| matches!(value, CacheValue::InUse));
    }
}
