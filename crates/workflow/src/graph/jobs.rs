//! The jobs of a graph and their edges. Parts that differ between workflows of one kind are
//! elsewhere, so that such workflows can share this.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Retry, TriggerRule, allocation_bytes};
use crate::model::JobIndex;

/// A job of a valid graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GraphJob {
    /// Unique in the workflow.
    pub name: String,
    /// The name of the code that a worker runs.
    pub handler: String,
    /// The queue; workers name the queues that they serve.
    pub queue: String,
    /// The delay after the end of its parents.
    pub wait: Duration,
    /// Jobs with a higher priority are claimed first.
    pub priority: u8,
    /// The time and the number of retries after failures.
    pub retry: Retry,
    /// Lost leases in a row that are tried again. The next one fails the job.
    pub max_lost: u16,
    /// The maximum time of an attempt; longer attempts fail.
    pub timeout: Option<Duration>,
    /// The outcomes of parents with which the job runs.
    pub rule: TriggerRule,
    /// The parents, ascending, without duplicates.
    pub parents: Vec<JobIndex>,
}

/// The jobs of a graph in the order of definition; the position is the job's index.
#[derive(Debug)]
pub struct GraphJobs {
    jobs: Box<[GraphJob]>,
    /// The children of all jobs in the order of their parents, and the end of each parent's
    /// children in that list.
    children: Box<[JobIndex]>,
    child_ends: Box<[u32]>,
    /// Whether other graphs may share these jobs.
    pub(super) shared: bool,
}

impl GraphJobs {
    pub(crate) fn new(jobs: Vec<GraphJob>) -> Self {
        let parents = || jobs.iter().flat_map(|job| &job.parents);
        let mut child_ends = vec![0; jobs.len()];
        parents().for_each(|parent| child_ends[parent.index()] += 1);
        let mut end = 0;
        for number in &mut child_ends {
            end += *number;
            *number = end;
        }
        let mut children = vec![JobIndex(0); end as usize];
        let mut free = child_ends.clone();
        // Jobs are filled in from last to first, so that the children of each parent are in order.
        for (at, job) in jobs.iter().enumerate().rev() {
            for parent in &job.parents {
                let free = &mut free[parent.index()];
                *free -= 1;
                children[*free as usize] = JobIndex(at as u32);
            }
        }
        Self {
            jobs: jobs.into(),
            children: children.into(),
            child_ends: child_ends.into(),
            shared: false,
        }
    }

    /// The children of a job.
    pub(super) fn children(&self, job: JobIndex) -> &[JobIndex] {
        let at = job.index();
        let start = if at == 0 { 0 } else { self.child_ends[at - 1] };
        &self.children[start as usize..self.child_ends[at] as usize]
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let indices = |number: usize| allocation_bytes(number * size_of::<JobIndex>());
        let job = |job: &GraphJob| {
            let names =
                [&job.name, &job.handler, &job.queue].map(|name| allocation_bytes(name.capacity()));
            names.iter().sum::<usize>() + indices(job.parents.capacity())
        };
        allocation_bytes(size_of::<Self>() + 2 * size_of::<usize>())
            + allocation_bytes(size_of_val(&*self.jobs))
            + self.jobs.iter().map(job).sum::<usize>()
            + indices(self.children.len())
            + indices(self.child_ends.len())
    }
}

impl Deref for GraphJobs {
    type Target = [GraphJob];

    fn deref(&self) -> &[GraphJob] {
        &self.jobs
    }
}

impl PartialEq for GraphJobs {
    fn eq(&self, other: &Self) -> bool {
        self.jobs == other.jobs
    }
}

impl Eq for GraphJobs {}

impl Hash for GraphJobs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.jobs.hash(state);
    }
}
