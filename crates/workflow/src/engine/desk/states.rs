//! The states of workflows that are kept in memory, of all partitions together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::{DefaultHashBuilder, HashMap};
use quick_cache::Lifecycle;
use quick_cache::unsync::Cache;

use super::entry::{Entry, Kept, Weight};
use super::group::Group;
use super::request::Posted;
use crate::graph::Graph;
use crate::graph::shapes::Shapes;
use crate::id::WorkflowId;

type Entries = Cache<WorkflowId, Kept, Weight, DefaultHashBuilder, Collect>;

/// The states of recently used workflows, and graphs that were looked at, within one bound: one workflow may take nearly all of it.
#[derive(Debug)]
pub(crate) struct States {
    entries: Mutex<Entries>,
    pub(crate) shapes: Shapes,
}

/// Collects what has to make room, so that it is freed when nobody waits for that.
#[derive(Debug, Clone)]
struct Collect;

impl Lifecycle<WorkflowId, Kept> for Collect {
    type RequestState = Vec<Kept>;

    fn on_evict(&self, evicted: &mut Vec<Kept>, _: WorkflowId, kept: Kept) {
        if !matches!(kept, Kept::Taken) {
            evicted.push(kept);
        }
    }
}

impl States {
    /// Keeps states of at most `memory` bytes.
    pub(crate) fn new(memory: u64) -> Self {
        /// About the least that a workflow takes.
        const SMALL: u64 = 2_048;
        let number = (memory / SMALL) as usize;
        let entries = Cache::with(
            number,
            memory,
            Weight,
            DefaultHashBuilder::default(),
            Collect,
        );
        Self {
            entries: Mutex::new(entries),
            shapes: Shapes::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The graph of a workflow.
    pub(crate) fn graph(&self, id: WorkflowId) -> Option<Arc<Graph>> {
        self.entries()
            .get(&id)
            .and_then(|kept| kept.graph().cloned())
    }

    /// Keeps a graph that was looked at, for whoever looks or works next.
    pub(crate) fn keep_graph(&self, id: WorkflowId, graph: &Arc<Graph>) {
        let mut entries = self.entries();
        if entries.get(&id).is_none() {
            let mut evicted = Vec::new();
            entries.insert_with_lifecycle(id, Kept::looked_at(graph), &mut evicted);
            drop(entries);
            drop(evicted);
        }
    }

    /// Groups requests by workflow, and takes out the states of these workflows that are in memory.
    pub(super) fn take(&self, posted: Vec<Posted>) -> Vec<Group> {
        let mut places: HashMap<WorkflowId, usize> = HashMap::with_capacity(posted.len());
        let mut groups: Vec<Group> = Vec::with_capacity(posted.len());
        let mut entries = self.entries();
        for posted in posted {
            let id = posted.workflow;
            let place = *places.entry(id).or_insert_with(|| {
                let kept = entries
                    .get_mut(&id)
                    .map(|mut kept| std::mem::replace(&mut *kept, Kept::Taken));
                groups.push(Group::new(id, kept));
                groups.len() - 1
            });
            groups[place].posted.push(posted);
        }
        groups
    }

    /// Keeps a state, unless the workflow has ended.
    pub(super) fn keep(&self, id: WorkflowId, entry: Box<Entry>) {
        // Ended workflows are rarely asked for. The memory is for the others.
        if !entry.workflow.is_stored() || entry.workflow.meta().status.is_over() {
            return self.give_up(id);
        }
        let mut evicted = Vec::new();
        self.entries()
            .insert_with_lifecycle(id, Kept::State(entry), &mut evicted);
        drop(evicted);
    }

    /// Nothing is kept of one that was worked on.
    pub(super) fn give_up(&self, id: WorkflowId) {
        self.entries()
            .remove_if(&id, |kept| matches!(kept, Kept::Taken));
    }
}
