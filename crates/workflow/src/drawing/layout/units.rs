//! Units, the objects that a layout positions: a job, or a block of jobs with the same parents and
//! children.

use hashbrown::HashMap;

use crate::graph::Graph;
use crate::model::JobIndex;

/// Maximum jobs with the same parents and children that are drawn one by one. A column of more is
/// taller than a screen.
const MAX_COLUMN_JOBS: usize = 24;

/// Whether jobs with the same parents and the same children are drawn as one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    Separate,
    /// Jobs are drawn as a block if they are more than [`MAX_COLUMN_JOBS`].
    Blocks,
}

/// A job or a block of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unit {
    Job(JobIndex),
    /// The jobs in the order of the graph.
    Block(Vec<JobIndex>),
}

impl Unit {
    /// Any job of the unit: all have the same parents.
    pub(super) fn first(&self) -> JobIndex {
        match self {
            Self::Job(job) => *job,
            Self::Block(jobs) => jobs[0],
        }
    }

    pub(crate) fn jobs(&self) -> &[JobIndex] {
        match self {
            Self::Job(job) => std::slice::from_ref(job),
            Self::Block(jobs) => jobs,
        }
    }
}

/// The units of a graph.
pub(super) struct Units {
    /// The units in the order of their first jobs.
    pub(super) list: Vec<Unit>,
    /// The unit of each job.
    pub(super) unit_of_job: Vec<u32>,
}

impl Units {
    pub(super) fn new(graph: &Graph, grouping: Grouping) -> Self {
        let count = graph.jobs.len();
        let jobs = graph.job_indexes();
        if grouping == Grouping::Separate {
            return Self {
                list: jobs.map(Unit::Job).collect(),
                unit_of_job: (0..count as u32).collect(),
            };
        }
        let classes = Classes::from_keys(
            jobs.map(|job| (&graph.jobs[job.index()].parents[..], graph.children(job))),
        );
        let mut units = Self {
            list: Vec::new(),
            unit_of_job: Vec::with_capacity(count),
        };
        let mut blocks: Vec<Option<u32>> = vec![None; classes.sizes.len()];
        for (at, &class) in classes.class_of.iter().enumerate() {
            let job = JobIndex(at as u32);
            let next = units.list.len() as u32;
            let unit = match blocks[class] {
                _ if classes.sizes[class] <= MAX_COLUMN_JOBS => {
                    units.list.push(Unit::Job(job));
                    next
                }
                None => {
                    units.list.push(Unit::Block(vec![job]));
                    *blocks[class].insert(next)
                }
                Some(block) => {
                    if let Unit::Block(jobs) = &mut units.list[block as usize] {
                        jobs.push(job);
                    }
                    block
                }
            };
            units.unit_of_job.push(unit);
        }
        units
    }
}

/// A partition of items into classes with equal keys.
pub(super) struct Classes {
    /// The class of each item.
    pub(super) class_of: Vec<usize>,
    /// The number of items of each class.
    pub(super) sizes: Vec<usize>,
}

impl Classes {
    pub(super) fn from_keys<K: std::hash::Hash + Eq>(keys: impl Iterator<Item = K>) -> Self {
        let mut class_by_key: HashMap<K, usize> = HashMap::new();
        let mut sizes = Vec::new();
        let class = |key| {
            let class = *class_by_key.entry(key).or_insert(sizes.len());
            sizes.resize(sizes.len().max(class + 1), 0);
            sizes[class] += 1;
            class
        };
        let class_of = keys.map(class).collect();
        Self { class_of, sizes }
    }
}
