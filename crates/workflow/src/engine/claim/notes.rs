//! Notes of workers about their running jobs: progress and log lines for people. No state depends
//! on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codec::{StoreError, StoredState, decode, decode_compact};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::graph::Graph;
use crate::machine::job_lease_lost;
use crate::model::workflow_state::Job;
use crate::model::{JobIndex, JobState, LeaseRef, Timestamp, WorkflowId};
use crate::store::{JobLog, JobNote, NoteOutcome};

/// A note of a worker about a job that it has leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The lease of the job.
    pub lease: LeaseRef,
    /// Percentage from 0 to 100 and a short text. `None` if unchanged.
    pub progress: Option<(u8, String)>,
    /// Lines for the log of the job.
    pub lines: Vec<String>,
}

/// The requested jobs that are not in their initial state.
type JobsByIndex = BTreeMap<JobIndex, Job>;

/// Decodes the jobs of an excerpt.
fn decode_jobs(
    id: WorkflowId,
    excerpt: Result<Option<StoredState>, StoreError>,
) -> Result<JobsByIndex, EngineError> {
    let state = excerpt?.ok_or(EngineError::NoWorkflow { workflow: id })?;
    let value = decode_compact(&state.meta, || format!("the state of workflow {id}"))?;
    if let Some(jobs) = value.jobs {
        return Ok((0..).map(JobIndex).zip(jobs).collect());
    }
    let job = |(job, bytes): &(JobIndex, Vec<u8>)| {
        Ok((
            *job,
            decode(bytes, || format!("the state of job {job} of workflow {id}"))?,
        ))
    };
    state.jobs.iter().map(job).collect()
}

impl Engine {
    /// Keeps notes of workers that hold these leases now, independently of each other, in their
    /// order. Makes two calls of the store: one verifies the leases, whichever server wrote the
    /// states last, one keeps the notes.
    ///
    /// # Errors
    /// For each note on its own: the lease was lost, or the store failed. After a failure of the
    /// store the note may be kept all the same.
    ///
    /// # Cancellation
    /// When the future is dropped, any of the notes may be kept.
    pub async fn add_notes(
        &self,
        notes: Vec<Note>,
        now: Timestamp,
    ) -> Vec<Result<(), EngineError>> {
        if notes.is_empty() {
            return Vec::new();
        }
        let leases: Vec<LeaseRef> = notes.iter().map(|note| note.lease).collect();
        let attempts = self.leased_attempts(&leases).await;
        let allowed = notes
            .into_iter()
            .zip(&attempts)
            .filter_map(|(note, attempt)| {
                let (
                    Note {
                        lease,
                        progress,
                        lines,
                    },
                    &attempt,
                ) = (note, attempt.as_ref().ok()?);
                Some(JobNote {
                    workflow: lease.workflow,
                    job: lease.job,
                    attempt,
                    at: now,
                    progress,
                    lines,
                })
            });
        let mut noted = self
            .store()
            .add_notes(&allowed.collect::<Vec<_>>())
            .await
            .into_iter();
        let results =
            leases
                .into_iter()
                .zip(attempts)
                .map(|(LeaseRef { workflow, .. }, attempt)| {
                    attempt?;
                    match noted.next().expect("each of the others was written")? {
                        NoteOutcome::Stored => Ok(()),
                        NoteOutcome::Gone => Err(EngineError::NoWorkflow { workflow }),
                    }
                });
        results.collect()
    }

    /// Returns the attempts that hold these leases, as the store has them now.
    async fn leased_attempts(&self, leases: &[LeaseRef]) -> Vec<Result<u16, EngineError>> {
        let mut jobs: BTreeMap<WorkflowId, Vec<JobIndex>> = BTreeMap::new();
        for lease in leases
            .iter()
            .filter(|lease| self.has_partition(lease.workflow))
        {
            jobs.entry(lease.workflow).or_default().push(lease.job);
        }
        let wanted: Vec<(WorkflowId, Vec<JobIndex>)> = jobs.into_iter().collect();
        let excerpts = self.store().excerpts(&wanted).await;
        let decoded = wanted
            .into_iter()
            .zip(excerpts)
            .map(|((id, _), excerpt)| (id, decode_jobs(id, excerpt)));
        let jobs_by_workflow: BTreeMap<WorkflowId, Result<JobsByIndex, EngineError>> =
            decoded.collect();
        let attempt = |lease| self.attempt_of(&jobs_by_workflow, lease);
        leases.iter().map(attempt).collect()
    }

    /// Returns the attempt that holds a lease, from the jobs of the workflows that exist.
    fn attempt_of(
        &self,
        jobs_by_workflow: &BTreeMap<WorkflowId, Result<JobsByIndex, EngineError>>,
        lease: &LeaseRef,
    ) -> Result<u16, EngineError> {
        let workflow = lease.workflow;
        let jobs = jobs_by_workflow
            .get(&workflow)
            .ok_or(EngineError::NoWorkflow { workflow })?
            .as_ref()
            .map_err(EngineError::clone)?;
        let unknown = Job::default();
        let job = jobs.get(&lease.job).unwrap_or(&unknown);
        match job.state {
            JobState::Running { .. } if job.token == lease.token => Ok(job.attempt),
            _ => Err(job_lease_lost(self.job_name(lease), job, lease.token).into()),
        }
    }

    /// Returns the name of a job, or its index if the graph is not in memory. A lost lease does not
    /// justify reading a graph.
    fn job_name(&self, LeaseRef { workflow, job, .. }: &LeaseRef) -> String {
        let graph = self.core.state_cache.graph(*workflow);
        let job_of = |graph: Arc<Graph>| graph.jobs.get(job.index()).map(|job| job.name.clone());
        graph.and_then(job_of).unwrap_or_else(|| job.to_string())
    }

    /// The log of a job.
    ///
    /// # Errors
    /// There is no such workflow or job, or the store failed.
    pub async fn log(&self, workflow: WorkflowId, job: &str) -> Result<JobLog, EngineError> {
        let (graph, _place) = self
            .graph(workflow)
            .await?
            .ok_or(EngineError::NoWorkflow { workflow })?;
        let index = graph.find(job).ok_or_else(|| EngineError::NoJob {
            workflow,
            job: job.to_owned(),
        })?;
        let log = self.store().log(workflow, index).await?;
        if log == JobLog::default() {
            // The graph may stay in memory for longer than the workflow stays in the store.
            self.encoded_summary(workflow).await?;
        }
        Ok(log)
    }
}
