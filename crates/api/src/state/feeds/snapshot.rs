//! Snapshot of a workflow for its event streams.

use std::sync::Arc;

use tidegate_workflow::{Engine, EngineError, JobState, Snapshot, WorkflowId};

/// State that a reader has. It is small, because thousands of readers may follow a workflow with
/// thousands of jobs.
#[derive(Debug)]
pub(crate) struct ReaderState {
    pub(crate) version: u64,
    /// State of each job, as its index in `JobState::WORDS`.
    pub(super) job_states: Vec<u8>,
}

/// A workflow at one version.
#[derive(Debug)]
pub(super) struct FeedSnapshot {
    pub(super) snapshot: Snapshot,
    pub(crate) state: Arc<ReaderState>,
}

impl FeedSnapshot {
    pub(super) async fn read(engine: &Engine, id: WorkflowId) -> Result<Arc<Self>, EngineError> {
        let snapshot = engine.show(id).await?;
        let large = snapshot.is_large();
        let build = move || {
            let state = ReaderState {
                version: snapshot.meta().version,
                job_states: job_states(&snapshot),
            };
            Arc::new(Self {
                snapshot,
                state: Arc::new(state),
            })
        };
        Ok(if large {
            engine.run_blocking(build).await
        } else {
            build()
        })
    }
}

fn job_states(snapshot: &Snapshot) -> Vec<u8> {
    let index_of = |state: JobState| {
        JobState::WORDS
            .iter()
            .position(|word| *word == state.word())
            .unwrap_or_default()
    };
    snapshot
        .jobs()
        .iter()
        .map(|job| index_of(job.state) as u8)
        .collect()
}
