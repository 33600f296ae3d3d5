//! A checked definition: names are resolved, there is no cycle, and all bounds hold.

mod check;
mod definition;
mod error;
mod interner;
mod job_limits;
mod jobs;
mod json_eq;
mod limits;
mod policies;
mod resolve;
mod suggestion;
#[cfg(test)]
mod tests;

pub use definition::{
    ConcurrencyScope, DEFAULT_MAX_LOST, DEFAULT_QUEUE, Definition, JobDefinition, LimitDefinition,
    OnFailure, Retry, TriggerRule,
};
pub use error::{
    GraphError, InvalidPolicy, LimitError, MAX_CONCURRENCY, MAX_DEPTH, MAX_HITS, MAX_JOBS,
    MAX_LIMIT_ENTRIES, MAX_LIMIT_KEY, MAX_LIMIT_TEXT, MAX_LIMITS, MAX_NAME, MAX_OUTPUT, MAX_PARAMS,
    MAX_RETRIES, MAX_TAGS, MAX_WEIGHT, MAX_WEIGHTS, WeightError,
};
pub(crate) use interner::GraphInterner;
pub(crate) use job_limits::JobLimits;
pub use jobs::GraphJob;
pub(crate) use jobs::GraphJobs;
pub use limits::{Limit, Limits};
pub use policies::{Policies, PolicyTarget, Weight};
pub(crate) use policies::{check_limits, check_weights};
pub use suggestion::most_similar;

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use self::json_eq::json_eq;
use crate::model::{JobIndex, Json, Label, Retention, TRACE, WorkflowId};
use check::{check_bounds, check_name, parents, printable};
use resolve::ResolvedLimits;

/// A valid graph of jobs. It is immutable and holds no job states.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Name and tags.
    pub label: Label,
    /// A JSON object that every job receives below its own params.
    pub globals: Option<Json>,
    /// The effect of a job's failure on other jobs.
    pub on_failure: OnFailure,
    /// Retention after the end. `None` for the default of the server.
    pub retention: Option<Retention>,
    /// An idempotency key, unique in the store.
    pub idempotency_key: Option<String>,
    /// Params of the jobs by index; empty if no job has any.
    pub(crate) params: Box<[Option<Json>]>,
    /// Limits of the jobs. `None` if no job has any.
    pub(crate) job_limits: Option<Box<JobLimits>>,
    /// The jobs in the order of definition; the position is the job's index.
    pub jobs: Arc<GraphJobs>,
}

impl Graph {
    /// Checks a definition and resolves its names. There is no other validation.
    ///
    /// # Errors
    /// The first mistake, with its path.
    pub fn build(definition: Definition) -> Result<Self, GraphError> {
        Self::build_with_policies(definition, &Policies::default())
    }

    /// Builds a graph whose jobs also get the limits of their queues and handlers.
    ///
    /// # Errors
    /// The first mistake, with its path.
    pub fn build_with_policies(
        definition: Definition,
        policies: &Policies,
    ) -> Result<Self, GraphError> {
        check_bounds(&definition)?;
        let parents = parents(&definition.jobs)?;
        let job_limits = resolve::limits(&definition, policies)?;
        let jobs = definition.jobs.into_iter().zip(parents);
        let (jobs, params): (Vec<_>, Vec<_>) = jobs
            .map(|(job, parents)| split_params(job, parents))
            .unzip();
        let graph = Self {
            label: Label {
                name: definition.name,
                tags: distinct(definition.tags),
            },
            globals: definition.globals,
            on_failure: definition.on_failure,
            retention: definition.retention,
            idempotency_key: definition.idempotency_key,
            params: drop_if_empty(params),
            job_limits,
            jobs: GraphJobs::new(jobs).into(),
        };
        if let Err(stuck) = graph.topological_order() {
            let cycle = graph.cycle_among(&stuck);
            return Err(GraphError::Cycle { cycle });
        }
        Ok(graph)
    }

    /// Jobs that come directly after a job.
    #[must_use]
    pub fn children(&self, job: JobIndex) -> &[JobIndex] {
        self.jobs.children(job)
    }

    /// All jobs in the order of definition.
    pub(crate) fn job_indexes(&self) -> impl ExactSizeIterator<Item = JobIndex> + Clone + use<> {
        (0..self.jobs.len() as u32).map(JobIndex)
    }

    /// The params of a job.
    #[must_use]
    pub fn params(&self, job: JobIndex) -> Option<&Json> {
        self.params.get(job.index())?.as_ref()
    }

    /// The limits of a job, as far as they are known without the workflow's id: see
    /// [`Limits::for_workflow`].
    #[must_use]
    pub fn limits(&self, job: JobIndex) -> Option<&Arc<Limits>> {
        self.job_limits.as_ref()?.for_job(job)
    }

    /// The names of the concurrency limits under which a job of a workflow needs a permit.
    pub(crate) fn permit_sets(&self, workflow: WorkflowId, job: JobIndex) -> Vec<String> {
        let Some(limits) = self.limits(job) else {
            return Vec::new();
        };
        let limits = limits.for_workflow(workflow);
        let set = |limit: &Limit| match limit {
            Limit::Concurrency { name, .. } => Some(name.clone()),
            Limit::Units { .. } => None,
        };
        limits.as_slice().iter().filter_map(set).collect()
    }

    /// Whether any job has limits.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        self.job_limits.is_some()
    }

    /// The trace context of the creation as JSON text, from the global `$trace`.
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        Json::trace_in(self.globals.as_ref()?.text())
    }

    /// The index of a job.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<JobIndex> {
        self.jobs
            .iter()
            .position(|job| job.name == name)
            .map(|at| JobIndex(at as u32))
    }

    /// All jobs in topological order.
    #[must_use]
    pub fn in_order(&self) -> Vec<JobIndex> {
        self.topological_order().expect("a graph has no cycle")
    }

    /// All descendants of `jobs`, without `jobs` themselves.
    #[must_use]
    pub fn descendants(&self, jobs: &[JobIndex]) -> Vec<JobIndex> {
        let mut seen: HashSet<JobIndex> = jobs.iter().copied().collect();
        let mut found: Vec<JobIndex> = jobs.to_vec();
        let mut at = 0;
        while let Some(&job) = found.get(at) {
            found.extend(
                self.children(job)
                    .iter()
                    .filter(|&&child| seen.insert(child)),
            );
            at += 1;
        }
        found.split_off(jobs.len())
    }

    /// The limits that the author gave to a job, without those of its queue and handler.
    fn own_limits(&self, job: JobIndex) -> &[Limit] {
        self.job_limits
            .as_ref()
            .map_or(&[], |job_limits| job_limits.own_limits(job))
    }

    fn globals_text(&self) -> &str {
        self.globals.as_ref().map_or("{}", Json::text)
    }

    /// Whether a newly built graph has the same definition. JSON may be spelled differently, the
    /// limits of queues and handlers may have changed, and the trace may differ.
    pub(crate) fn has_same_definition(&self, other: &Self) -> bool {
        let same = |one: Option<&Json>, other: Option<&Json>| match (one, other) {
            (Some(one), Some(other)) => json_eq(one.text(), other.text(), None),
            (one, other) => one == other,
        };
        let mut all = self.job_indexes();
        self.label == other.label
            && (self.on_failure, self.retention) == (other.on_failure, other.retention)
            && self.idempotency_key == other.idempotency_key
            && self.jobs == other.jobs
            && all
                .clone()
                .all(|job| self.own_limits(job).ends_with(other.own_limits(job)))
            && json_eq(self.globals_text(), other.globals_text(), Some(TRACE))
            && all.all(|job| same(self.params(job), other.params(job)))
    }

    /// Bytes in memory besides `size_of::<Self>()`, without jobs that are shared with other graphs.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let text = |json: &Option<Json>| {
            json.as_ref()
                .map_or(0, |json| allocation_bytes(json.text().len()))
        };
        let string = |text: &String| allocation_bytes(text.capacity());
        let tag = |tag: &String| size_of::<String>() + string(tag);
        string(&self.label.name)
            + self.label.tags.iter().map(tag).sum::<usize>()
            + text(&self.globals)
            + self.idempotency_key.as_ref().map_or(0, string)
            + allocation_bytes(size_of_val(&*self.params))
            + self.params.iter().map(text).sum::<usize>()
            + self
                .job_limits
                .as_ref()
                .map_or(0, |job_limits| job_limits.allocated_bytes())
            + if self.jobs.shared {
                0
            } else {
                self.jobs.bytes()
            }
    }

    /// Sorts the jobs by Kahn's algorithm. With a cycle, returns the jobs that cannot be sorted.
    fn topological_order(&self) -> Result<Vec<JobIndex>, Vec<JobIndex>> {
        let mut open_parents: Vec<usize> = self.jobs.iter().map(|job| job.parents.len()).collect();
        let all = self.job_indexes();
        let mut order: Vec<JobIndex> = all
            .clone()
            .filter(|job| open_parents[job.index()] == 0)
            .collect();
        let mut at = 0;
        while let Some(&job) = order.get(at) {
            for child in self.children(job) {
                open_parents[child.index()] -= 1;
                if open_parents[child.index()] == 0 {
                    order.push(*child);
                }
            }
            at += 1;
        }
        if order.len() == self.jobs.len() {
            Ok(order)
        } else {
            Err(all.filter(|job| open_parents[job.index()] > 0).collect())
        }
    }

    /// A cycle among jobs each of which has a parent among them: walks from parent to parent until
    /// a job repeats.
    fn cycle_among(&self, stuck: &[JobIndex]) -> Vec<String> {
        let stuck: HashSet<JobIndex> = stuck.iter().copied().collect();
        let mut path = Vec::new();
        let mut positions: HashMap<JobIndex, usize> = HashMap::new();
        let mut job = *stuck.iter().min().expect("a cycle has jobs");
        while !positions.contains_key(&job) {
            positions.insert(job, path.len());
            path.push(job);
            let parents = &self.jobs[job.index()].parents;
            job = *parents
                .iter()
                .find(|parent| stuck.contains(*parent))
                .expect("each of them waits for another");
        }
        // The path leads from child to parent. The result leads from parent to child and begins
        // with the job that was defined first.
        path.drain(..positions[&job]);
        path.reverse();
        let first = (0..path.len()).min_by_key(|&at| path[at]).unwrap_or(0);
        path.rotate_left(first);
        path.push(path[0]);
        path.iter()
            .map(|job| self.jobs[job.index()].name.clone())
            .collect()
    }
}

/// Bytes of a graph above which decoding takes longer than a millisecond.
pub(crate) const LARGE_GRAPH_BYTES: usize = 128 << 10;

/// Estimated bytes of an allocation of `bytes` bytes: allocators round up.
pub(crate) const fn allocation_bytes(bytes: usize) -> usize {
    if bytes == 0 {
        0
    } else {
        bytes.next_multiple_of(16) + bytes / 16
    }
}

/// Drops the list if no job has params.
fn drop_if_empty(params: Vec<Option<Json>>) -> Box<[Option<Json>]> {
    if params.iter().any(Option::is_some) {
        params.into()
    } else {
        Box::default()
    }
}

fn split_params(job: JobDefinition, mut parents: Vec<JobIndex>) -> (GraphJob, Option<Json>) {
    parents.sort_unstable();
    parents.dedup();
    let JobDefinition {
        name,
        handler,
        params,
        queue,
        wait,
        priority,
        retry,
        max_lost,
        timeout,
        rule,
        ..
    } = job;
    (
        GraphJob {
            name,
            handler,
            queue,
            wait,
            priority,
            retry,
            max_lost,
            timeout,
            rule,
            parents,
        },
        params,
    )
}

fn distinct(mut tags: Vec<String>) -> Vec<String> {
    tags.sort_unstable();
    tags.dedup();
    tags
}
