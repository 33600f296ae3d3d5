//! The jobs of a graph, and the arrows between them. What differs between two workflows of one kind
//! is not here, so that they can share this.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::allocated;
use super::definition::{Retry, TriggerRule};
use crate::id::JobIndex;

/// A job of a sound graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GraphJob {
    /// Unique in the workflow.
    pub name: String,
    /// What a worker runs.
    pub handler: String,
    /// Which workers may take it.
    pub queue: String,
    /// How long it waits after the jobs before it are done.
    pub wait: Duration,
    /// Jobs of a higher priority are taken first.
    pub priority: u8,
    /// When and how often it runs again after a failure.
    pub retry: Retry,
    /// How many lost leases in a row are tried again. The next one fails the job.
    pub max_lost: u16,
    /// An attempt that takes longer is failed.
    pub timeout: Option<Duration>,
    /// Which outcomes of its parents let it run.
    pub rule: TriggerRule,
    /// The jobs it runs after, each once, ascending.
    pub parents: Vec<JobIndex>,
}

/// The jobs of a graph in the order of definition; the place is the job's index.
#[derive(Debug)]
pub struct Jobs {
    each: Box<[GraphJob]>,
    /// The children of the first job, then those of the second, and so on; and where those of each
    /// end.
    children: Box<[JobIndex]>,
    ends: Box<[u32]>,
    /// Whether other graphs may have them too.
    pub(super) shared: bool,
}

impl Jobs {
    pub(super) fn new(each: Vec<GraphJob>) -> Self {
        let parents = || each.iter().flat_map(|job| &job.parents);
        let mut ends = vec![0; each.len()];
        parents().for_each(|parent| ends[parent.index()] += 1);
        let mut end = 0;
        for number in &mut ends {
            end += *number;
            *number = end;
        }
        let mut children = vec![JobIndex(0); end as usize];
        let mut free = ends.clone();
        // From the last one on, so that those of each are in order.
        for (at, job) in each.iter().enumerate().rev() {
            for parent in &job.parents {
                let free = &mut free[parent.index()];
                *free -= 1;
                children[*free as usize] = JobIndex(at as u32);
            }
        }
        Self {
            each: each.into(),
            children: children.into(),
            ends: ends.into(),
            shared: false,
        }
    }

    /// Jobs that come directly after a job.
    pub(super) fn children(&self, job: JobIndex) -> &[JobIndex] {
        let at = job.index();
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.children[start as usize..self.ends[at] as usize]
    }

    /// What they take in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let indices = |number: usize| allocated(number * size_of::<JobIndex>());
        let job = |job: &GraphJob| {
            let names =
                [&job.name, &job.handler, &job.queue].map(|name| allocated(name.capacity()));
            names.iter().sum::<usize>() + indices(job.parents.capacity())
        };
        allocated(size_of::<Self>() + 2 * size_of::<usize>())
            + allocated(size_of_val(&*self.each))
            + self.each.iter().map(job).sum::<usize>()
            + indices(self.children.len())
            + indices(self.ends.len())
    }
}

impl Deref for Jobs {
    type Target = [GraphJob];

    fn deref(&self) -> &[GraphJob] {
        &self.each
    }
}

impl PartialEq for Jobs {
    fn eq(&self, other: &Self) -> bool {
        self.each == other.each
    }
}

impl Eq for Jobs {}

impl Hash for Jobs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.each.hash(state);
    }
}
