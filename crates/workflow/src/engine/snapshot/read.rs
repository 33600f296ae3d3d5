//! Reads of workflows, or parts of them, for display.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::{JobResult, PartialSnapshot, Snapshot, SnapshotSource, WorkflowSummary};
use crate::codec::change::ResultField;
use crate::codec::record::decode;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::list::{Listed, listed};
use crate::engine::post::run_blocking::LargeReadPermit;
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{AttemptError, Job, JobState, Meta};
use crate::store::error::StoreError;
use crate::store::query::EncodedSummary;
use crate::workflow::Workflow;

/// Bytes of a graph above which decoding takes longer than a millisecond.
const LARGE: usize = 128 << 10;

/// Maximum parents whose states are read with the shown jobs. Above it, the whole workflow is read.
const MOST_PARENTS: usize = 10_000;

impl Engine {
    /// A workflow as the store has it now. Two large workflows may be in memory for display: a
    /// further call waits, before it reads, until one is dropped.
    ///
    /// # Errors
    /// The workflow does not exist, or cannot be read.
    pub async fn show(&self, id: WorkflowId) -> Result<Snapshot, EngineError> {
        let place = if self.is_large(id).await? {
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
        let large = stored.graph.len() > LARGE;
        // Decoding a large graph takes longer than everything else, and a graph never changes.
        let graph = if large {
            self.core.states.graph(id)
        } else {
            None
        };
        let read = move || {
            let workflow = match graph {
                Some(graph) => Workflow::read_state(id, graph, &stored.state),
                None => Workflow::read(id, &stored),
            };
            workflow.map(|workflow| (queues(&workflow.graph), workflow))
        };
        let (names, workflow) = if large {
            self.run_blocking(read).await?
        } else {
            read()?
        };
        if large {
            self.core.states.keep_graph(id, &workflow.graph);
        }
        Ok(Snapshot {
            place,
            ..self.snapshot(SnapshotSource::All(Box::new(workflow)), &names)
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
        Ok(size > LARGE as u64)
    }

    fn snapshot(&self, shown: SnapshotSource, queues: &[String]) -> Snapshot {
        let (paused_queues, served_queues) = self.queues().paused_and_served(queues);
        Snapshot {
            shown,
            paused_queues,
            served_queues,
            place: None,
            found: HashMap::new(),
        }
    }

    /// Some jobs of a workflow as the store has them now: those that `choose` selects in its graph.
    /// If the reason why they do not run needs the whole state, that is read.
    ///
    /// # Errors
    /// The workflow does not exist, or cannot be read.
    pub async fn show_some(
        &self,
        id: WorkflowId,
        choose: impl FnOnce(&Graph) -> Vec<JobIndex>,
    ) -> Result<Snapshot, EngineError> {
        if id.is_small() {
            return self.show(id).await;
        }
        let none = || EngineError::NoWorkflow { workflow: id };
        let (graph, place) = self.graph(id).await?.ok_or_else(none)?;
        let chosen = choose(&graph);
        let mut wanted = chosen.clone();
        wanted.extend(
            chosen
                .iter()
                .flat_map(|job| &graph.jobs[job.index()].parents)
                .take(MOST_PARENTS + 1),
        );
        if wanted.len() > chosen.len() + MOST_PARENTS {
            drop((graph, place));
            return self.show(id).await;
        }
        let state = self.store().excerpt(id, &wanted).await?.ok_or_else(none)?;
        let meta: Meta = decode(&state.meta, || format!("the state of workflow {id}"))?;
        let mut jobs = HashMap::with_capacity(state.jobs.len());
        for (job, bytes) in &state.jobs {
            jobs.insert(
                *job,
                decode(bytes, || format!("the state of job {job} of workflow {id}"))?,
            );
        }
        let waits = |job: &JobIndex| {
            jobs.get(job)
                .is_none_or(|job: &Job| job.state == JobState::Waiting)
        };
        if meta.blocked() != Some(0) && chosen.iter().any(waits) {
            drop((graph, place));
            return self.show(id).await;
        }
        let queues: HashSet<&str> = chosen
            .iter()
            .map(|job| graph.jobs[job.index()].queue.as_str())
            .collect();
        let queues: Vec<String> = queues.into_iter().map(str::to_owned).collect();
        let unknown = Job::default();
        let shown = SnapshotSource::Some(Box::new(PartialSnapshot {
            id,
            graph,
            meta,
            jobs,
            unknown,
        }));
        Ok(Snapshot {
            place,
            ..self.snapshot(shown, &queues)
        })
    }

    /// The graph of a workflow, from memory if it was used or shown here, because a graph never
    /// changes. A large graph that must be read comes with a permit.
    pub(in crate::engine) async fn graph(
        &self,
        id: WorkflowId,
    ) -> Result<Option<(Arc<Graph>, Option<LargeReadPermit>)>, EngineError> {
        if !self.has_partition(id) {
            return Ok(None);
        }
        if let Some(graph) = self.core.states.graph(id) {
            return Ok(Some((graph, None)));
        }
        let place = if self.is_large(id).await? {
            Some(self.large_read_permit().await)
        } else {
            None
        };
        let Some(stored) = self.store().graph(id).await? else {
            return Ok(None);
        };
        let large = stored.len() > LARGE;
        let read = move || -> Result<Graph, StoreError> {
            decode(&stored, || format!("the graph of workflow {id}"))
        };
        let graph = if large {
            self.run_blocking(read).await?
        } else {
            read()?
        };
        let graph = Arc::new(self.core.states.shapes.share(graph));
        self.core.states.keep_graph(id, &graph);
        Ok(Some((graph, place)))
    }

    /// A workflow without its graph and its jobs. The whole state is read only if jobs failed and
    /// others wait.
    ///
    /// # Errors
    /// The workflow does not exist, or cannot be read.
    pub async fn outline(&self, id: WorkflowId) -> Result<WorkflowSummary, EngineError> {
        let listed = listed(id, &self.head(id).await?)?;
        if let Some(blocked) = listed.meta.blocked() {
            return Ok(WorkflowSummary { listed, blocked });
        }
        let snapshot = self.show(id).await?;
        let label = listed.label;
        let meta = snapshot.meta().clone();
        Ok(WorkflowSummary {
            listed: Listed {
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
    pub async fn glance(&self, id: WorkflowId) -> Result<Meta, EngineError> {
        Ok(decode(&self.head(id).await?.meta, || {
            format!("the state of workflow {id}")
        })?)
    }

    pub(in crate::engine) async fn head(
        &self,
        id: WorkflowId,
    ) -> Result<EncodedSummary, EngineError> {
        let head = if self.has_partition(id) {
            self.store().heads(&[id]).await.pop().transpose()?.flatten()
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
            let errors = (0..ERRORS).map(move |place| ResultField::Error(job, place));
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
        each.map(|(found, job)| {
            let errors = found[2..].iter().flatten();
            let errors = errors
                .map(|bytes| decode(bytes, || format!("an error of job {job} of workflow {id}")));
            let mut errors: Vec<AttemptError> = errors.collect::<Result<_, _>>()?;
            errors.sort_by_key(|error| error.at);
            let progress = found[1].as_ref();
            let progress = progress.map(|bytes| {
                decode(bytes, || {
                    format!("the progress of job {job} of workflow {id}")
                })
            });
            Ok(JobResult {
                output: found[0].clone(),
                errors,
                progress: progress.transpose()?,
            })
        })
        .collect()
    }

    pub(crate) fn has_partition(&self, id: WorkflowId) -> bool {
        id.partition().0 < self.store().partitions()
    }
}

/// The names of all queues of a graph's jobs.
fn queues(graph: &Graph) -> Vec<String> {
    let names: HashSet<&str> = graph.jobs.iter().map(|job| job.queue.as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}
