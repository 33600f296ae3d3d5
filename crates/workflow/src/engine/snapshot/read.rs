//! Reads of workflows, or parts of them, for display.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};

use super::{JobResult, PartialSnapshot, Snapshot, SnapshotSource, WorkflowSummary};
use crate::codec::{ResultField, StoreError, StoredState, decode};
use crate::engine::actor::run_blocking::LargeReadPermit;
use crate::engine::context::error::EngineError;
use crate::engine::{Engine, ListedWorkflow, decode_listed};
use crate::graph::{Graph, GraphJob, LARGE_GRAPH_BYTES};
use crate::machine::Workflow;
use crate::model::workflow_state::Job;
use crate::model::{AttemptError, JobIndex, JobState, Meta, WorkflowId};
use crate::store::EncodedSummary;

/// Maximum parents whose states are read with the shown jobs. Above it, the whole workflow is read.
const MAX_PARENTS: usize = 10_000;

impl Engine {
    /// A workflow as the store has it now. Two large workflows may be in memory for display: a
    /// further call waits, before it reads, until one is dropped.
    ///
    /// # Errors
    /// The workflow does not exist, or cannot be read.
    pub async fn show(&self, id: WorkflowId) -> Result<Snapshot, EngineError> {
        let read_permit = if self.is_large(id).await? {
            Some(self.large_read_permit().await)
        } else {
            None
        };
        let stored = if self.has_partition(id) {
            self.store().load(&[id]).await?.pop().flatten()
        } else {
            None
        };
        let stored = stored.ok_or(EngineError::NoWorkflow { workflow: id })?;
        let is_large = stored.graph.len() > LARGE_GRAPH_BYTES;
        // Decoding a large graph takes longer than everything else, and a graph never changes.
        let graph = if is_large {
            self.core.state_cache.graph(id)
        } else {
            None
        };
        let read = move || {
            let workflow = match graph {
                Some(graph) => Workflow::read_state(id, graph, &stored.state),
                None => Workflow::read(id, &stored),
            };
            workflow.map(|workflow| (queue_names_in(workflow.graph.jobs.iter()), workflow))
        };
        let (names, workflow) = if is_large {
            self.run_blocking(read).await?
        } else {
            read()?
        };
        if is_large {
            self.core.state_cache.insert_graph(id, &workflow.graph);
        }
        Ok(Snapshot {
            read_permit,
            ..self.snapshot(SnapshotSource::Whole(Box::new(workflow)), &names)
        })
    }

    /// Whether reading the whole workflow takes long.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn is_large(&self, id: WorkflowId) -> Result<bool, EngineError> {
        if id.is_small() || !self.has_partition(id) {
            return Ok(false);
        }
        let size = self.store().sizes(&[id]).await?.pop().unwrap_or_default();
        Ok(size > LARGE_GRAPH_BYTES as u64)
    }

    fn snapshot(&self, source: SnapshotSource, queues: &[String]) -> Snapshot {
        let (paused_queues, served_queues) = self.queues().paused_and_served(queues);
        Snapshot {
            source,
            paused_queues,
            served_queues,
            read_permit: None,
            reasons: HashMap::new(),
        }
    }

    /// Some jobs of a workflow as the store has them now: those that `choose` selects in its graph.
    /// If the reason why they do not run needs the whole state, that is read.
    ///
    /// # Errors
    /// The workflow does not exist, or cannot be read.
    pub async fn show_jobs(
        &self,
        id: WorkflowId,
        choose: impl FnOnce(&Graph) -> Vec<JobIndex>,
    ) -> Result<Snapshot, EngineError> {
        if id.is_small() {
            return self.show(id).await;
        }
        let none = || EngineError::NoWorkflow { workflow: id };
        let (graph, read_permit) = self.graph(id).await?.ok_or_else(none)?;
        let chosen = choose(&graph);
        let Some(wanted) = with_parents(&graph, &chosen) else {
            drop((graph, read_permit));
            return self.show(id).await;
        };
        let state = self.store().excerpt(id, &wanted).await?.ok_or_else(none)?;
        let partial = PartialSnapshot::decode(id, graph, &state)?;
        let waits = |job: &JobIndex| {
            let job = partial.jobs.get(job);
            job.is_none_or(|job| job.state == JobState::Waiting)
        };
        if partial.meta.blocked() != Some(0) && chosen.iter().any(waits) {
            drop((partial, read_permit));
            return self.show(id).await;
        }
        let definitions = chosen.iter().map(|job| &partial.graph.jobs[job.index()]);
        let queues = queue_names_in(definitions);
        let source = SnapshotSource::Partial(Box::new(partial));
        Ok(Snapshot {
            read_permit,
            ..self.snapshot(source, &queues)
        })
    }

    /// The graph of a workflow, from memory if it was used or shown here, because a graph never
    /// changes. A large graph that must be read comes with a permit.
    pub(crate) async fn graph(
        &self,
        id: WorkflowId,
    ) -> Result<Option<(Arc<Graph>, Option<LargeReadPermit>)>, EngineError> {
        if !self.has_partition(id) {
            return Ok(None);
        }
        if let Some(graph) = self.core.state_cache.graph(id) {
            return Ok(Some((graph, None)));
        }
        let read_permit = if self.is_large(id).await? {
            Some(self.large_read_permit().await)
        } else {
            None
        };
        let Some(stored) = self.store().graphs(&[id]).await?.pop().flatten() else {
            return Ok(None);
        };
        let is_large = stored.len() > LARGE_GRAPH_BYTES;
        let read = move || -> Result<Graph, StoreError> {
            decode(&stored, || format!("the graph of workflow {id}"))
        };
        let graph = if is_large {
            self.run_blocking(read).await?
        } else {
            read()?
        };
        let graph = Arc::new(self.core.state_cache.interner.share(graph));
        self.core.state_cache.insert_graph(id, &graph);
        Ok(Some((graph, read_permit)))
    }

    /// A workflow without its graph and its jobs. The whole state is read only if jobs failed and
    /// others wait.
    ///
    /// # Errors
    /// The workflow does not exist, or cannot be read.
    pub async fn workflow_summary(&self, id: WorkflowId) -> Result<WorkflowSummary, EngineError> {
        let listed = decode_listed(id, &self.encoded_summary(id).await?)?;
        if let Some(blocked) = listed.meta.blocked() {
            return Ok(WorkflowSummary { listed, blocked });
        }
        let snapshot = self.show(id).await?;
        let label = listed.label;
        let meta = snapshot.meta().clone();
        Ok(WorkflowSummary {
            listed: ListedWorkflow {
                workflow: id,
                label,
                meta,
            },
            blocked: snapshot.blocked(),
        })
    }

    /// The state of a workflow without its jobs. Reads far less than [`Engine::show`].
    ///
    /// # Errors
    /// The workflow does not exist, or cannot be read.
    pub async fn workflow_meta(&self, id: WorkflowId) -> Result<Meta, EngineError> {
        Ok(decode(&self.encoded_summary(id).await?.meta, || {
            format!("the state of workflow {id}")
        })?)
    }

    pub(in crate::engine) async fn encoded_summary(
        &self,
        id: WorkflowId,
    ) -> Result<EncodedSummary, EngineError> {
        let head = if self.has_partition(id) {
            self.store()
                .summaries(&[id])
                .await
                .pop()
                .transpose()?
                .flatten()
        } else {
            None
        };
        head.ok_or(EngineError::NoWorkflow { workflow: id })
    }

    /// The results of jobs of a workflow, in the order of `jobs`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn results(
        &self,
        id: WorkflowId,
        jobs: &[JobIndex],
    ) -> Result<Vec<JobResult>, EngineError> {
        const ERRORS: u8 = 10;
        let fields = jobs.iter().flat_map(|&job| {
            let errors = (0..ERRORS).map(move |read_permit| ResultField::Error(job, read_permit));
            [ResultField::Output(job), ResultField::Progress(job)]
                .into_iter()
                .chain(errors)
        });
        let found = self
            .store()
            .results(&[(id, fields.collect())])
            .await?
            .pop()
            .unwrap_or_default();
        let each = found.chunks(2 + usize::from(ERRORS)).zip(jobs);
        each.map(|(found, &job)| decode_result(id, job, found))
            .collect::<Result<_, StoreError>>()
            .map_err(EngineError::from)
    }

    /// The errors of the latest attempts of failed jobs of a snapshot, in the order of `jobs`. `None`
    /// for an error that the store has lost.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn last_errors(
        &self,
        snapshot: &Snapshot,
        jobs: &[JobIndex],
    ) -> Result<Vec<Option<AttemptError>>, EngineError> {
        let id = snapshot.id();
        let field = |&job: &JobIndex| ResultField::latest_error(job, snapshot.job(job));
        let fields = jobs.iter().map(field).collect();
        let found = self.store().results(&[(id, fields)]).await?.pop();
        let decoded = |bytes: Option<Bytes>| {
            let error = bytes.map(|bytes| decode(&bytes, || format!("an error of workflow {id}")));
            error.transpose()
        };
        let errors = found.unwrap_or_default().into_iter().map(decoded);
        Ok(errors.collect::<Result<_, StoreError>>()?)
    }

    pub(crate) fn has_partition(&self, id: WorkflowId) -> bool {
        id.partition().0 < self.store().partitions()
    }
}

/// Decodes the result of a job from its output, its progress, and its errors.
fn decode_result(
    id: WorkflowId,
    job: JobIndex,
    fields: &[Option<Bytes>],
) -> Result<JobResult, StoreError> {
    let errors = fields[2..].iter().flatten();
    let errors =
        errors.map(|bytes| decode(bytes, || format!("an error of job {job} of workflow {id}")));
    let mut errors: Vec<AttemptError> = errors.collect::<Result<_, _>>()?;
    errors.sort_by_key(|error| error.at);
    let progress = fields[1].as_ref().map(|bytes| {
        decode(bytes, || {
            format!("the progress of job {job} of workflow {id}")
        })
    });
    Ok(JobResult {
        output: fields[0].clone(),
        errors,
        progress: progress.transpose()?,
    })
}

impl PartialSnapshot {
    fn decode(id: WorkflowId, graph: Arc<Graph>, state: &StoredState) -> Result<Self, StoreError> {
        let job = |(job, bytes): &(JobIndex, Vec<u8>)| {
            let decoded = decode(bytes, || format!("the state of job {job} of workflow {id}"));
            decoded.map(|decoded| (*job, decoded))
        };
        Ok(Self {
            id,
            graph,
            meta: decode(&state.meta, || format!("the state of workflow {id}"))?,
            jobs: state.jobs.iter().map(job).collect::<Result<_, _>>()?,
            unknown: Job::default(),
        })
    }
}

/// Returns jobs and their parents. `None` if there are too many parents.
fn with_parents(graph: &Graph, jobs: &[JobIndex]) -> Option<Vec<JobIndex>> {
    let parents = jobs
        .iter()
        .flat_map(|job| &graph.jobs[job.index()].parents)
        .take(MAX_PARENTS + 1);
    let all: Vec<JobIndex> = jobs.iter().chain(parents).copied().collect();
    (all.len() <= jobs.len() + MAX_PARENTS).then_some(all)
}

/// The names of the queues of jobs.
fn queue_names_in<'a>(jobs: impl Iterator<Item = &'a GraphJob>) -> Vec<String> {
    let names: HashSet<&str> = jobs.map(|job| job.queue.as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}
