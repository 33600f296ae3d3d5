//! Imports workflows of Ruby's Gush from its Redis, in both layouts: with indexes and stored lists
//! of classes (since version 3.1), and without. Nothing in that Redis is changed.

mod convert;
mod source;

use std::time::Duration;

use thiserror::Error;
use tidegate_pipeline::{Client, CommandError};

use crate::engine::context::error::EngineError;
use crate::engine::{Created, Engine, NewWorkflow};
use crate::model::Timestamp;
use convert::{excess_reason, job_counts, to_new_workflow};
use source::{GushJob, GushRecord, ScannedKeys, Source, seconds};

/// Workflows that are read and created in one batch.
const BATCH: usize = 200;

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GushReport {
    /// Number of created workflows.
    pub created: u64,
    /// Number of workflows that an earlier import created.
    pub existing: u64,
    /// Number of jobs of the created workflows.
    pub jobs: u64,
    /// Number of jobs that Gush had queued and that have not ended: they are ready here, and must
    /// not run there any more.
    pub unfinished: u64,
    /// Keys that were not imported, each with a reason.
    pub skipped: Vec<(String, String)>,
}

/// The reason why an import stopped. Workflows that were created before remain; another import
/// continues.
#[derive(Debug, Error)]
pub enum GushError {
    /// The Redis of Gush did not answer.
    #[error("reading Gush's data: {0}")]
    Redis(#[from] CommandError),
    /// The workflows could not be created here.
    #[error("creating the workflows: {0}")]
    Engine(#[from] EngineError),
}

/// Creates every workflow of Gush's Redis, in its current state there. The idempotency key
/// `gush:<its id>` identifies an imported workflow, so a second import creates nothing.
///
/// # Errors
/// One of the stores did not answer.
pub async fn import_gush(
    source: &Client,
    engine: &Engine,
    timeout: Duration,
    now: Timestamp,
) -> Result<GushReport, GushError> {
    let source = Source {
        client: source,
        timeout,
    };
    let mut found = source.scan().await?;
    let mut report = GushReport {
        skipped: std::mem::take(&mut found.skipped),
        ..GushReport::default()
    };
    for ids in found.workflows.chunks(BATCH) {
        let new = read_batch(&source, ids, &found, now, &mut report).await?;
        let sizes: Vec<(u64, u64)> = new.iter().map(job_counts).collect();
        for ((jobs, unfinished), created) in sizes.into_iter().zip(engine.create(new, now).await) {
            report.count(jobs, unfinished, created)?;
        }
    }
    Ok(report)
}

/// Reads and converts workflows. Invalid ones are added to the report.
async fn read_batch(
    source: &Source<'_>,
    ids: &[String],
    found: &ScannedKeys,
    now: Timestamp,
    report: &mut GushReport,
) -> Result<Vec<NewWorkflow>, GushError> {
    let mut new = Vec::with_capacity(ids.len());
    for (id, read) in ids.iter().zip(source.read(ids, &found.classes).await?) {
        match read.and_then(|read| convert_if_allowed(id, &read, now)) {
            Ok(workflow) => new.push(workflow),
            Err(reason) => report
                .skipped
                .push((format!("gush.workflows.{id}"), reason)),
        }
    }
    Ok(new)
}

/// The new workflow, or the reason why it is not imported.
fn convert_if_allowed(id: &str, read: &GushRecord, now: Timestamp) -> Result<NewWorkflow, String> {
    match excess_reason(read) {
        Some(reason) => Err(reason),
        None => {
            to_new_workflow(id, read, now).map_err(|error| format!("it is not a graph: {error}"))
        }
    }
}

impl GushReport {
    /// Counts the result for a workflow with `jobs` jobs, of which `unfinished` have not ended.
    fn count(
        &mut self,
        jobs: u64,
        unfinished: u64,
        created: Result<Created, EngineError>,
    ) -> Result<(), EngineError> {
        match created {
            Ok(created) if created.existing => self.existing += 1,
            // A workflow that changed since an earlier import stays as it is.
            Err(EngineError::KeyMismatch { .. }) => self.existing += 1,
            Ok(_) => {
                self.created += 1;
                self.jobs += jobs;
                self.unfinished += unfinished;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
