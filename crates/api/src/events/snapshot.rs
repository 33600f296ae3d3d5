//! A workflow as its readers see it.

use std::sync::Arc;

use tidegate_workflow::{Engine, EngineError, JobState, Snapshot, WorkflowId};

/// What a reader knows: not the workflow itself, since thousands may look at one of thousands of jobs.
#[derive(Debug)]
pub(super) struct ReaderState {
    pub(super) version: u64,
    /// What each job is doing, as its place among the words.
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
