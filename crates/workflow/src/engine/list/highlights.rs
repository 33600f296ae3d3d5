//! What a page of workflows shows of their jobs: the first failure and the running ones. The states
//! of small workflows are in their summaries, so a page of these takes one more round trip. Other
//! workflows take two more.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{ListedWorkflow, Page};
use crate::codec::{ResultField, StoreError, StoredState, decode};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::graph::{Graph, LARGE_GRAPH_BYTES};
use crate::model::workflow_state::Job;
use crate::model::{AttemptError, JobIndex, JobState, Meta, Timestamp, WorkflowId};

/// Maximum running jobs that are named.
const MAX_RUNNING: usize = 3;
/// Maximum states of jobs that one call reads for workflows that are not small: about 1 MiB.
pub(super) const MAX_JOBS: usize = 16_384;
/// Maximum bytes of graphs that one call reads for these workflows: some milliseconds to decode.
pub(super) const MAX_GRAPH_BYTES: u64 = 1 << 20;

/// The first failure and the running jobs of a workflow, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Highlights {
    /// The job that failed first.
    pub failure: Option<JobFailure>,
    /// Names of running jobs, at most three, in the order of the definition.
    pub running: Vec<String>,
}

/// A failed job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFailure {
    /// Its name.
    pub job: String,
    /// Its handler.
    pub handler: String,
    /// The end of its last attempt.
    pub finished_at: Option<Timestamp>,
    /// The error of its last attempt. `None` if the store has lost it.
    pub error: Option<AttemptError>,
}

/// The jobs of a workflow that a list shows.
#[derive(Debug)]
struct ShownJobs {
    workflow: WorkflowId,
    failed: Option<FailedJob>,
    running: Vec<JobIndex>,
}

/// The job of a workflow that failed first.
#[derive(Debug, Clone, Copy)]
struct FailedJob {
    index: JobIndex,
    /// The field of its error.
    error: ResultField,
    finished_at: Option<Timestamp>,
}

impl ShownJobs {
    fn choose<'a>(
        workflow: WorkflowId,
        jobs: impl Iterator<Item = (JobIndex, &'a Job)> + Clone,
    ) -> Self {
        let failed = jobs
            .clone()
            .filter(|(_, job)| job.state == JobState::Failed)
            .min_by_key(|(_, job)| job.finished_at);
        let running = jobs
            .filter(|(_, job)| job.state.is_running())
            .map(|(index, _)| index);
        Self {
            workflow,
            failed: failed.map(|(index, job)| FailedJob {
                index,
                error: ResultField::latest_error(index, job),
                finished_at: job.finished_at,
            }),
            running: running.take(MAX_RUNNING).collect(),
        }
    }

    /// Adds the names of the jobs and the error.
    fn highlights(&self, graph: &Graph, error: Option<AttemptError>) -> Highlights {
        let definition = |job: &JobIndex| graph.jobs.get(job.index());
        let failed = self.failed.and_then(|failed| {
            let job = definition(&failed.index)?;
            Some(JobFailure {
                job: job.name.clone(),
                handler: job.handler.clone(),
                finished_at: failed.finished_at,
                error,
            })
        });
        let running = self.running.iter().filter_map(definition);
        Highlights {
            failure: failed,
            running: running.map(|job| job.name.clone()).collect(),
        }
    }
}

/// Whether a workflow has jobs that a list shows.
pub(super) fn has_highlights(meta: &Meta) -> bool {
    meta.counts.count(JobState::Failed) > 0 || meta.counts.count_by_word("running") > 0
}

/// The jobs of a state. Those that cannot be decoded are left out.
pub(super) fn decoded_jobs(id: WorkflowId, state: &StoredState) -> Vec<(JobIndex, Job)> {
    let job = |(index, bytes): &(JobIndex, Vec<u8>)| {
        let decoded = decode(bytes, || {
            format!("the state of job {index} of workflow {id}")
        });
        Some((*index, decoded.ok()?))
    };
    state.jobs.iter().filter_map(job).collect()
}

impl Engine {
    /// The first failures and running jobs of the workflows of a page. Workflows without any are
    /// left out, and those for which more would have to be read than one call may.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn highlights(
        &self,
        page: &Page,
    ) -> Result<HashMap<WorkflowId, Highlights>, EngineError> {
        let shown = page.items.iter().filter(|item| has_highlights(&item.meta));
        let mut small = Vec::new();
        let mut others = Vec::new();
        for item in shown {
            match page.small_jobs.get(&item.workflow) {
                Some(jobs) => small.push(ShownJobs::choose(
                    item.workflow,
                    (0..).map(JobIndex).zip(jobs),
                )),
                None => others.push(item),
            }
        }
        let (mut found, others) =
            tokio::try_join!(self.read_highlights(&small), self.shown_jobs(&others))?;
        found.extend(self.read_highlights(&others).await?);
        Ok(found)
    }

    /// Chooses jobs of workflows that are not small, as far as their states and graphs are within
    /// the bounds of a call.
    async fn shown_jobs(&self, listed: &[&ListedWorkflow]) -> Result<Vec<ShownJobs>, StoreError> {
        let mut remaining_jobs = MAX_JOBS;
        let mut wanted: Vec<(WorkflowId, Vec<JobIndex>)> = Vec::new();
        for item in listed {
            let jobs = item.meta.counts.total();
            if jobs <= remaining_jobs {
                remaining_jobs -= jobs;
                let all = (0..jobs as u32).map(JobIndex).collect();
                wanted.push((item.workflow, all));
            }
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let cached = |id: &WorkflowId| self.core.state_cache.graph(*id).is_some();
        let ids = wanted.iter().map(|(id, _)| *id);
        let uncached: Vec<WorkflowId> = ids.filter(|id| !cached(id)).collect();
        let (states, sizes) = tokio::join!(
            self.store().excerpts(&wanted),
            self.store().sizes(&uncached)
        );
        let sizes: HashMap<WorkflowId, u64> = uncached.into_iter().zip(sizes?).collect();
        let mut remaining_bytes = MAX_GRAPH_BYTES;
        let mut shown = Vec::new();
        for ((id, _), state) in wanted.into_iter().zip(states) {
            let bytes = sizes.get(&id).copied().unwrap_or_default();
            let Ok(Some(state)) = state else { continue };
            if bytes > remaining_bytes.min(LARGE_GRAPH_BYTES as u64) {
                continue;
            }
            remaining_bytes -= bytes;
            let jobs = decoded_jobs(id, &state);
            let jobs = jobs.iter().map(|(index, job)| (*index, job));
            shown.push(ShownJobs::choose(id, jobs));
        }
        Ok(shown)
    }

    /// Reads names and errors of jobs.
    async fn read_highlights(
        &self,
        shown: &[ShownJobs],
    ) -> Result<HashMap<WorkflowId, Highlights>, StoreError> {
        if shown.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<WorkflowId> = shown.iter().map(|shown| shown.workflow).collect();
        let fields = |shown: &ShownJobs| shown.failed.iter().map(|failed| failed.error).collect();
        let wanted: Vec<(WorkflowId, Vec<ResultField>)> = shown
            .iter()
            .map(|shown| (shown.workflow, fields(shown)))
            .collect();
        let (graphs, errors) = tokio::try_join!(self.graphs(&ids), self.store().results(&wanted))?;
        let each = shown.iter().zip(errors);
        let highlights = each.filter_map(|(shown, errors)| {
            let id = shown.workflow;
            let error = errors.into_iter().flatten().next();
            let error = error
                .and_then(|bytes| decode(&bytes, || format!("an error of workflow {id}")).ok());
            Some((id, shown.highlights(graphs.get(&id)?, error)))
        });
        Ok(highlights.collect())
    }

    /// Graphs of workflows, from memory if they were used or shown here. Those that do not exist or
    /// cannot be decoded are left out.
    pub(super) async fn graphs(
        &self,
        ids: &[WorkflowId],
    ) -> Result<HashMap<WorkflowId, Arc<Graph>>, StoreError> {
        let cache = &self.core.state_cache;
        let cached = ids.iter().filter_map(|&id| Some((id, cache.graph(id)?)));
        let mut graphs: HashMap<WorkflowId, Arc<Graph>> = cached.collect();
        let missing = ids.iter().copied().filter(|id| !graphs.contains_key(id));
        let missing: Vec<WorkflowId> = missing.collect();
        if missing.is_empty() {
            return Ok(graphs);
        }
        let stored = self.store().graphs(&missing).await?;
        for (id, bytes) in missing.into_iter().zip(stored) {
            let Some(bytes) = bytes else { continue };
            if let Ok(graph) = decode(&bytes, || format!("the graph of workflow {id}")) {
                let graph = Arc::new(cache.interner.share(graph));
                cache.insert_graph(id, &graph);
                graphs.insert(id, graph);
            }
        }
        Ok(graphs)
    }
}
