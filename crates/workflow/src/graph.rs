//! A checked definition: every name is resolved, there is no cycle, and all bounds are kept.

mod check;
pub(crate) mod definition;
pub(crate) mod error;
pub(crate) mod json;
mod meaning;
mod similar;
#[cfg(test)]
mod tests;

use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use serde::{Deserialize, Serialize};

use self::check::{check_bounds, parents};
use self::definition::{Definition, JobDefinition, OnFailure, Retention, Retry, TriggerRule};
use self::error::GraphError;
use self::json::Json;
use crate::id::JobIndex;
use crate::state::Label;

/// A sound graph of jobs. Immutable; the states of its jobs are kept apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Name and tags.
    pub label: Label,
    /// A JSON object that every job gets below its own params.
    pub globals: Option<Json>,
    /// What the failure of one job means for the others.
    pub on_failure: OnFailure,
    /// How long it is kept after its end, if the definition says.
    pub retention: Option<Retention>,
    /// The key that is unique in the store.
    pub idempotency_key: Option<String>,
    /// The jobs in the order of definition; the place is the job's index.
    pub jobs: Vec<GraphJob>,
    #[serde(skip)]
    children: Vec<Vec<JobIndex>>,
}

/// A job of a sound graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphJob {
    /// Unique in the workflow.
    pub name: String,
    /// What a worker runs.
    pub handler: String,
    /// What the handler gets.
    pub params: Option<Json>,
    /// Which workers may take it.
    pub queue: String,
    /// How long it waits after the jobs before it are done.
    pub wait: Duration,
    /// Jobs of a higher priority are taken first.
    pub priority: u8,
    /// When and how often it runs again after a failure.
    pub retry: Retry,
    /// An attempt that takes longer is failed.
    pub timeout: Option<Duration>,
    /// Which outcomes of its parents let it run.
    pub rule: TriggerRule,
    /// The jobs it runs after, each once, ascending.
    pub parents: Vec<JobIndex>,
}

impl Graph {
    /// Checks a definition and resolves its names. The only validation there is.
    ///
    /// # Errors
    /// The first mistake found, with its place.
    pub fn build(definition: Definition) -> Result<Self, GraphError> {
        check_bounds(&definition)?;
        let parents = parents(&definition.jobs)?;
        let jobs = definition.jobs.into_iter().zip(parents).map(|(job, parents)| resolved(job, parents)).collect();
        let mut graph = Self {
            label: Label { name: definition.name, tags: distinct(definition.tags) },
            globals: definition.globals,
            on_failure: definition.on_failure,
            retention: definition.retention,
            idempotency_key: definition.idempotency_key,
            jobs,
            children: Vec::new(),
        };
        graph.link_children();
        match graph.order() {
            Ok(_) => Ok(graph),
            Err(stuck) => Err(GraphError::Cycle { cycle: graph.cycle_among(&stuck) }),
        }
    }

    /// Jobs that come directly after a job.
    #[must_use]
    pub fn children(&self, job: JobIndex) -> &[JobIndex] {
        &self.children[job.index()]
    }

    /// The index of a job.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<JobIndex> {
        self.jobs.iter().position(|job| job.name == name).map(|at| JobIndex(at as u32))
    }

    /// All jobs, each after its parents.
    #[must_use]
    pub fn in_order(&self) -> Vec<JobIndex> {
        self.order().expect("a graph has no cycle")
    }

    /// All jobs that come after one of `jobs`, directly or not, without `jobs` themselves.
    #[must_use]
    pub fn descendants(&self, jobs: &[JobIndex]) -> Vec<JobIndex> {
        let mut seen: HashSet<JobIndex> = jobs.iter().copied().collect();
        let mut found: Vec<JobIndex> = jobs.to_vec();
        let mut at = 0;
        while let Some(&job) = found.get(at) {
            found.extend(self.children(job).iter().filter(|&&child| seen.insert(child)));
            at += 1;
        }
        found.split_off(jobs.len())
    }

    /// Whether another graph runs the same: its JSON may be spelled in another way.
    pub(crate) fn means_the_same(&self, other: &Self) -> bool {
        let same = |one: &Option<Json>, other: &Option<Json>| match (one, other) {
            (Some(one), Some(other)) => meaning::same(one.text(), other.text()),
            (one, other) => one == other,
        };
        self == other
            || same(&self.globals, &other.globals)
                && self.jobs.len() == other.jobs.len()
                && self.jobs.iter().zip(&other.jobs).all(|(one, other)| same(&one.params, &other.params))
                && self.without_json() == other.without_json()
    }

    fn without_json(&self) -> Self {
        let mut bare = self.clone();
        bare.globals = None;
        bare.jobs.iter_mut().for_each(|job| job.params = None);
        bare
    }

    /// What it takes in memory besides its own size, in bytes.
    pub(crate) fn allocated(&self) -> usize {
        let text = |json: &Option<Json>| json.as_ref().map_or(0, |json| allocated(json.text().len()));
        let indices = |indices: &Vec<JobIndex>| allocated(indices.capacity() * size_of::<JobIndex>());
        let job = |job: &GraphJob| {
            let names = [&job.name, &job.handler, &job.queue].map(|name| allocated(name.capacity()));
            names.iter().sum::<usize>() + text(&job.params) + indices(&job.parents)
        };
        let tags = self.label.tags.iter().map(|tag| size_of::<String>() + allocated(tag.capacity()));
        allocated(self.label.name.capacity())
            + tags.sum::<usize>()
            + text(&self.globals)
            + self.idempotency_key.as_ref().map_or(0, |key| allocated(key.capacity()))
            + allocated(self.jobs.capacity() * size_of::<GraphJob>())
            + self.jobs.iter().map(job).sum::<usize>()
            + allocated(self.children.capacity() * size_of::<Vec<JobIndex>>())
            + self.children.iter().map(indices).sum::<usize>()
    }

    /// Restores what is not stored.
    pub(crate) fn link_children(&mut self) {
        self.children = vec![Vec::new(); self.jobs.len()];
        for (at, job) in self.jobs.iter().enumerate() {
            for parent in &job.parents {
                self.children[parent.index()].push(JobIndex(at as u32));
            }
        }
    }

    /// Kahn's algorithm. With a cycle, the jobs that cannot be put in order.
    fn order(&self) -> Result<Vec<JobIndex>, Vec<JobIndex>> {
        let mut missing: Vec<usize> = self.jobs.iter().map(|job| job.parents.len()).collect();
        let all = (0..self.jobs.len()).map(|at| JobIndex(at as u32));
        let mut order: Vec<JobIndex> = all.clone().filter(|job| missing[job.index()] == 0).collect();
        let mut at = 0;
        while let Some(&job) = order.get(at) {
            for child in self.children(job) {
                missing[child.index()] -= 1;
                if missing[child.index()] == 0 {
                    order.push(*child);
                }
            }
            at += 1;
        }
        if order.len() == self.jobs.len() {
            Ok(order)
        } else {
            Err(all.filter(|job| missing[job.index()] > 0).collect())
        }
    }

    /// One cycle among jobs of which each has a parent among them: go back until a job comes again.
    fn cycle_among(&self, stuck: &[JobIndex]) -> Vec<String> {
        let stuck: HashSet<JobIndex> = stuck.iter().copied().collect();
        let mut path = Vec::new();
        let mut places: HashMap<JobIndex, usize> = HashMap::new();
        let mut job = *stuck.iter().min().expect("a cycle has jobs");
        while !places.contains_key(&job) {
            places.insert(job, path.len());
            path.push(job);
            let parents = &self.jobs[job.index()].parents;
            job = *parents.iter().find(|parent| stuck.contains(*parent)).expect("each of them waits for another");
        }
        // Backwards, the path goes from parent to child. It begins with the job that was defined first.
        path.drain(..places[&job]);
        path.reverse();
        let first = path.iter().enumerate().min_by_key(|&(_, job)| job).map_or(0, |(place, _)| place);
        path.rotate_left(first);
        let mut cycle: Vec<String> = path.iter().map(|job| self.jobs[job.index()].name.clone()).collect();
        cycle.extend(cycle.first().cloned());
        cycle
    }
}

/// What an allocation of so many bytes takes: allocators round up.
pub(crate) const fn allocated(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { bytes.next_multiple_of(16) + bytes / 16 }
}

fn resolved(job: JobDefinition, mut parents: Vec<JobIndex>) -> GraphJob {
    parents.sort_unstable();
    parents.dedup();
    let JobDefinition { name, handler, params, queue, wait, priority, retry, timeout, rule, .. } = job;
    GraphJob { name, handler, params, queue, wait, priority, retry, timeout, rule, parents }
}

fn distinct(mut tags: Vec<String>) -> Vec<String> {
    tags.sort_unstable();
    tags.dedup();
    tags
}
