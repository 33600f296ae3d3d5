//! Notes of workers about their running jobs: progress and log lines for people. No state depends
//! on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::error::EngineError;
use crate::codec::change::StoredState;
use crate::codec::compact_state::decode_compact;
use crate::codec::lease::LeaseRef;
use crate::codec::record::decode;
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{Job, JobState};
use crate::store::error::StoreError;
use crate::store::notes::{JobNote, Log, Noted};
use crate::time::Timestamp;
use crate::transition::refusal::lost;

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
type Jobs = BTreeMap<JobIndex, Job>;

/// Decodes the jobs of an excerpt.
fn known(
    id: WorkflowId,
    excerpt: Result<Option<StoredState>, StoreError>,
) -> Result<Jobs, EngineError> {
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
    pub async fn note(&self, notes: Vec<Note>, now: Timestamp) -> Vec<Result<(), EngineError>> {
        if notes.is_empty() {
            return Vec::new();
        }
        let leases: Vec<LeaseRef> = notes.iter().map(|note| note.lease).collect();
        let attempts = self.attempts(&leases).await;
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
            .note(&allowed.collect::<Vec<_>>())
            .await
            .into_iter();
        let each = leases
            .into_iter()
            .zip(attempts)
            .map(|(LeaseRef { workflow, .. }, attempt)| {
                attempt?;
                match noted.next().expect("each of the others was written")? {
                    Noted::Yes => Ok(()),
                    Noted::Gone => Err(EngineError::NoWorkflow { workflow }),
                }
            });
        each.collect()
    }

    /// Returns the attempts that hold these leases, as the store has them now.
    async fn attempts(&self, leases: &[LeaseRef]) -> Vec<Result<u16, EngineError>> {
        let mut jobs: BTreeMap<WorkflowId, Vec<JobIndex>> = BTreeMap::new();
        for lease in leases
            .iter()
            .filter(|lease| self.has_partition(lease.workflow))
        {
            jobs.entry(lease.workflow).or_default().push(lease.job);
        }
        let wanted: Vec<(WorkflowId, Vec<JobIndex>)> = jobs.into_iter().collect();
        let excerpts = self.store().excerpts(&wanted).await;
        let each = wanted
            .into_iter()
            .zip(excerpts)
            .map(|((id, _), excerpt)| (id, known(id, excerpt)));
        let known: BTreeMap<WorkflowId, Result<Jobs, EngineError>> = each.collect();
        let unknown = Job::default();
        let attempt = |lease: &LeaseRef| {
            let none = EngineError::NoWorkflow {
                workflow: lease.workflow,
            };
            let jobs = known
                .get(&lease.workflow)
                .ok_or(none)?
                .as_ref()
                .map_err(EngineError::clone)?;
            let job = jobs.get(&lease.job).unwrap_or(&unknown);
            match job.state {
                JobState::Running { .. } if job.token == lease.token => Ok(job.attempt),
                _ => Err(lost(self.name_of(lease), job, lease.token).into()),
            }
        };
        leases.iter().map(attempt).collect()
    }

    /// Returns the name of a job, or its index if the graph is not in memory. A lost lease does not
    /// justify reading a graph.
    fn name_of(&self, LeaseRef { workflow, job, .. }: &LeaseRef) -> String {
        let graph = self.core.states.graph(*workflow);
        let job_of = |graph: Arc<Graph>| graph.jobs.get(job.index()).map(|job| job.name.clone());
        graph.and_then(job_of).unwrap_or_else(|| job.to_string())
    }

    /// The log of a job.
    ///
    /// # Errors
    /// There is no such workflow or job, or the store failed.
    pub async fn log(&self, workflow: WorkflowId, job: &str) -> Result<Log, EngineError> {
        let (graph, _place) = self
            .graph(workflow)
            .await?
            .ok_or(EngineError::NoWorkflow { workflow })?;
        let index = graph.find(job).ok_or_else(|| EngineError::NoJob {
            workflow,
            job: job.to_owned(),
        })?;
        let log = self.store().log(workflow, index).await?;
        if log == Log::default() {
            // The graph may stay in memory for longer than the workflow stays in the store.
            self.head(workflow).await?;
        }
        Ok(log)
    }
}
