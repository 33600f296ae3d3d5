//! Snapshot of a workflow for its event streams.

use std::sync::Arc;

use tidegate_workflow::{Engine, EngineError, JobState, Snapshot, WorkflowId};

/// State that a reader has. It is small, because thousands of readers may follow a workflow with
/// thousands of jobs.
#[derive(Debug)]
pub(super) struct ReaderState {
    pub(super) version: u64,
    /// State of each job, as its index in `JobState::WORDS`.
    pub(super) places: Vec<u8>,
}

/// A workflow at one version.
#[derive(Debug)]
pub(super) struct FeedSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) told: Arc<ReaderState>,
}

impl FeedSnapshot {
    pub(super) async fn read(engine: &Engine, id: WorkflowId) -> Result<Arc<Self>, EngineError> {
        let snapshot = engine.show(id).await?;
        let large = snapshot.is_large();
        let look = move || {
            let told = ReaderState {
                version: snapshot.meta().version,
                places: places(&snapshot),
            };
            Arc::new(Self {
                snapshot,
                told: Arc::new(told),
            })
        };
        Ok(if large {
            engine.run_blocking(look).await
        } else {
            look()
        })
    }
}

fn places(snapshot: &Snapshot) -> Vec<u8> {
    let place = |state: JobState| {
        JobState::WORDS
            .iter()
            .position(|word| *word == state.word())
            .unwrap_or_default()
    };
    snapshot
        .jobs()
        .iter()
        .map(|job| place(job.state) as u8)
        .collect()
}
