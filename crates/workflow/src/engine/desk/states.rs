//! The states of workflows that a desk keeps in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use quick_cache::unsync::Cache;

use super::entry::{Entry, Weight};
use super::group::Group;
use super::request::Posted;
use crate::id::WorkflowId;

type Entries = Cache<WorkflowId, Box<Entry>, Weight>;

/// The states of recently used workflows.
#[derive(Debug)]
pub(super) struct States(Mutex<Entries>);

impl States {
    /// Keeps states of at most `memory` bytes.
    pub(super) fn new(memory: u64) -> Self {
        Self(Mutex::new(Cache::with_weighter((memory / 1_024) as usize, memory, Weight)))
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Groups requests by workflow, and takes out the states of these workflows that are in memory.
    pub(super) fn take(&self, posted: Vec<Posted>) -> Vec<Group> {
        let mut places: HashMap<WorkflowId, usize> = HashMap::with_capacity(posted.len());
        let mut groups: Vec<Group> = Vec::with_capacity(posted.len());
        let mut entries = self.entries();
        for posted in posted {
            let id = posted.workflow;
            let place = *places.entry(id).or_insert_with(|| {
                let entry = entries.remove(&id).map(|(_, entry)| entry);
                groups.push(Group::new(id, entry));
                groups.len() - 1
            });
            groups[place].posted.push(posted);
        }
        groups
    }

    /// Keeps a state, unless the workflow has ended.
    pub(super) fn keep(&self, id: WorkflowId, entry: Box<Entry>) {
        // Ended workflows are rarely asked for. The memory is for the others.
        if entry.workflow.is_stored() && !entry.workflow.meta.status.is_over() {
            self.entries().insert(id, entry);
        }
    }
}
