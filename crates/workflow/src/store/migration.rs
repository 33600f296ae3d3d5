//! Rewrites all workflows of a store in the latest format while servers use the store.
//!
//! First the store records that it is being migrated; from then on servers write the latest format.
//! Then each workflow is rewritten by a guarded change. So a migration can stop at any moment and
//! continue later.

use bytes::Bytes;

use super::{Broadcast, EncodedSummary, RowSet, ServerId, Store, StoreError};
use crate::codec::{
    Applied, Change, Format, ResultField, Row, Section, Stored, decode, workflow_in_row,
};
use crate::machine::Workflow;
use crate::model::{AttemptError, JobIndex, Partition, Timestamp, WorkflowId};

/// Index rows that one read returns.
const PAGE_ROWS: usize = 256;
/// Bytes of graphs at which a batch takes no further workflow. It bounds the memory of a batch; one
/// larger workflow is a batch of its own.
const BATCH_GRAPH_BYTES: u64 = 1 << 20;
/// Workflows of one batch: one read and one write.
const BATCH_WORKFLOWS: usize = 64;
/// Attempts to rewrite workflows that servers write at the same time. The next pass tries the rest
/// again.
const MAX_ATTEMPTS: usize = 5;
/// Errors of attempts that are stored for each job.
const MAX_JOB_ERRORS: u8 = 10;
/// Jobs whose errors one command reads.
const JOBS_PER_COMMAND: usize = 100;

/// A workflow to rewrite.
struct WorkflowToRewrite {
    workflow: Workflow,
    /// The jobs that have a stored record.
    jobs: Vec<JobIndex>,
}

/// Errors of attempts, each with its field.
type AttemptErrors = Vec<(ResultField, AttemptError)>;

/// Workflows in an earlier format, and the position of the next page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutdatedWorkflows {
    /// The ids of these workflows.
    pub ids: Vec<WorkflowId>,
    /// The row after which the next page begins. `None` after the last page.
    pub next: Option<Row>,
}

/// The result of a rewrite.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RewriteResult {
    /// Number of workflows that were rewritten.
    pub written: u64,
    /// Workflows that cannot be decoded, each with the error.
    pub unreadable: Vec<(WorkflowId, StoreError)>,
}

impl RewriteResult {
    fn add(&mut self, more: Self) {
        self.written += more.written;
        self.unreadable.extend(more.unreadable);
    }
}

impl Store {
    /// Whether the store has the latest format and is not being migrated.
    #[must_use]
    pub fn is_latest(&self) -> bool {
        self.format() == Format::LATEST && !self.is_migrating()
    }

    /// Makes all servers write the latest format. Servers notice the migration when they verify the
    /// store next. No workflow is rewritten yet.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn begin_migration(&self) -> Result<(), StoreError> {
        // A migration that an earlier version began continues to the latest format.
        if self.is_migrating() && self.format() == Format::LATEST {
            return Ok(());
        }
        each_store!(self, store => store.begin_migration().await)?;
        // Servers that receive the broadcast verify the store. No server has id 0.
        self.broadcast(ServerId(0), Broadcast::Queues).await;
        Ok(())
    }

    /// Records that no workflow in an earlier format is left.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn end_migration(&self) -> Result<(), StoreError> {
        each_store!(self, store => store.end_migration().await)
    }

    /// A page of the workflows of a partition that are not in the latest format, after the row
    /// `after`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn outdated_workflows(
        &self,
        partition: Partition,
        after: Option<&Row>,
    ) -> Result<OutdatedWorkflows, StoreError> {
        let begin = Section::All.prefix();
        let after = Some(after.unwrap_or(&begin).as_slice());
        let mut rows = self
            .rows(partition, RowSet::Index, after, PAGE_ROWS)
            .await?;
        rows.retain(|row| row.starts_with(&begin));
        let next = rows.last().filter(|_| rows.len() == PAGE_ROWS).cloned();
        let mut ids: Vec<WorkflowId> = rows.iter().filter_map(|row| workflow_in_row(row)).collect();
        let heads = self.summaries(&ids).await.into_iter();
        let heads: Vec<Option<EncodedSummary>> = heads.collect::<Result<_, _>>()?;
        let mut heads = heads.iter();
        ids.retain(|_| {
            heads
                .next()
                .is_some_and(|head| head.as_ref().is_some_and(is_outdated))
        });
        Ok(OutdatedWorkflows { ids, next })
    }

    /// Rewrites workflows of one partition in the store's format. Nothing else of them changes.
    ///
    /// # Errors
    /// The store cannot be read or written. Some workflows may have been rewritten.
    pub async fn rewrite(
        &self,
        partition: Partition,
        ids: &[WorkflowId],
        now: Timestamp,
    ) -> Result<RewriteResult, StoreError> {
        let mut rewritten = RewriteResult::default();
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (&id, size) in ids.iter().zip(self.sizes(ids).await?) {
            if !batch.is_empty()
                && (bytes + size > BATCH_GRAPH_BYTES || batch.len() == BATCH_WORKFLOWS)
            {
                let batch = std::mem::take(&mut batch);
                rewritten.add(self.rewrite_batch(partition, batch, now).await?);
                bytes = 0;
            }
            batch.push(id);
            bytes += size;
        }
        rewritten.add(self.rewrite_batch(partition, batch, now).await?);
        Ok(rewritten)
    }

    async fn rewrite_batch(
        &self,
        partition: Partition,
        mut ids: Vec<WorkflowId>,
        now: Timestamp,
    ) -> Result<RewriteResult, StoreError> {
        let mut rewritten = RewriteResult::default();
        for _ in 0..MAX_ATTEMPTS {
            if ids.is_empty() {
                break;
            }
            let changes = self.rewriting_changes(&ids, now, &mut rewritten).await?;
            let applied = self.apply(partition, &changes).await?;
            ids.clear();
            for (change, applied) in changes.iter().zip(applied) {
                if applied == Applied::Done {
                    rewritten.written += 1;
                } else {
                    ids.push(change.workflow);
                }
            }
        }
        Ok(rewritten)
    }

    /// Reads workflows and builds the changes that rewrite them. Workflows that cannot be decoded
    /// are added to `rewritten`.
    async fn rewriting_changes(
        &self,
        ids: &[WorkflowId],
        now: Timestamp,
        rewritten: &mut RewriteResult,
    ) -> Result<Vec<Change>, StoreError> {
        let read = self.decode_each(ids, rewritten).await?;
        let errors = self.errors(&read).await?;
        let mut changes = Vec::with_capacity(ids.len());
        for (WorkflowToRewrite { mut workflow, jobs }, errors) in read.into_iter().zip(errors) {
            match errors {
                Ok(errors) => {
                    workflow.rewrite(&jobs, errors);
                    changes.extend(workflow.change(fastrand::u32(..), self.write_options(), now));
                }
                Err(error) => rewritten.unreadable.push((workflow.id, error)),
            }
        }
        Ok(changes)
    }

    /// Reads workflows. Those that cannot be decoded are added to `rewritten`.
    async fn decode_each(
        &self,
        ids: &[WorkflowId],
        rewritten: &mut RewriteResult,
    ) -> Result<Vec<WorkflowToRewrite>, StoreError> {
        let mut read = Vec::with_capacity(ids.len());
        for (&id, loaded) in ids.iter().zip(self.load_each(ids).await?) {
            match loaded.and_then(|stored| decode_workflow(id, stored)) {
                Ok(workflow) => read.extend(workflow),
                Err(error) => rewritten.unreadable.push((id, error)),
            }
        }
        Ok(read)
    }

    /// Reads workflows. A corrupt one fails alone.
    async fn load_each(
        &self,
        ids: &[WorkflowId],
    ) -> Result<Vec<Result<Option<Stored>, StoreError>>, StoreError> {
        match self.load(ids).await {
            Err(StoreError::Corrupt { .. }) => {}
            loaded => return Ok(loaded?.into_iter().map(Ok).collect()),
        }
        let mut each = Vec::with_capacity(ids.len());
        for id in ids {
            each.push(match self.load(&[*id]).await {
                Err(error @ StoreError::Corrupt { .. }) => Err(error),
                loaded => Ok(loaded?.pop().flatten()),
            });
        }
        Ok(each)
    }

    /// The stored errors of attempts of each workflow. A workflow whose errors cannot be decoded
    /// fails alone.
    async fn errors(
        &self,
        read: &[WorkflowToRewrite],
    ) -> Result<Vec<Result<AttemptErrors, StoreError>>, StoreError> {
        let mut positions = Vec::new();
        let mut wanted: Vec<(WorkflowId, Vec<ResultField>)> = Vec::new();
        for (position, WorkflowToRewrite { workflow, jobs }) in read.iter().enumerate() {
            for jobs in jobs.chunks(JOBS_PER_COMMAND) {
                positions.push(position);
                wanted.push((workflow.id, jobs.iter().flat_map(error_fields).collect()));
            }
        }
        let mut errors: Vec<Result<AttemptErrors, StoreError>> = vec![Ok(Vec::new()); read.len()];
        let mut positions = positions.into_iter();
        for wanted in wanted.chunks(BATCH_WORKFLOWS) {
            let found = self.results(wanted).await?;
            for (((id, fields), values), position) in wanted.iter().zip(found).zip(&mut positions) {
                match (&mut errors[position], decoded_errors(*id, fields, values)) {
                    (Ok(all), Ok(more)) => all.extend(more),
                    (all, Err(error)) => *all = Err(error),
                    (Err(_), Ok(_)) => {}
                }
            }
        }
        Ok(errors)
    }
}

/// Whether a workflow is in an earlier format. The label has the latest format only if all of the
/// workflow was rewritten; for a small workflow, its own format says that. The meta shows a write
/// by a server that had not noticed the migration yet.
fn is_outdated(head: &EncodedSummary) -> bool {
    let is_latest = |record: &[u8]| matches!(Format::split_mark(record), Ok((Format::LATEST, _)));
    !is_latest(&head.label) || !is_latest(&head.meta)
}

/// Decodes a workflow. `None` if it does not exist any more.
fn decode_workflow(
    id: WorkflowId,
    stored: Option<Stored>,
) -> Result<Option<WorkflowToRewrite>, StoreError> {
    let Some(stored) = stored else {
        return Ok(None);
    };
    let workflow = Workflow::read(id, &stored)?;
    let jobs = if id.is_small() {
        // The state of a small workflow is one value with all jobs.
        (0..workflow.jobs.len() as u32).map(JobIndex).collect()
    } else {
        stored.state.jobs.iter().map(|(job, _)| *job).collect()
    };
    Ok(Some(WorkflowToRewrite { workflow, jobs }))
}

fn error_fields(job: &JobIndex) -> impl Iterator<Item = ResultField> + use<> {
    let job = *job;
    (0..MAX_JOB_ERRORS).map(move |slot| ResultField::Error(job, slot))
}

/// Decodes those of the given error fields that have a value.
fn decoded_errors(
    id: WorkflowId,
    fields: &[ResultField],
    values: Vec<Option<Bytes>>,
) -> Result<AttemptErrors, StoreError> {
    let found = fields.iter().zip(values);
    let kept = found.filter_map(|(field, bytes)| Some((*field, bytes?)));
    kept.map(|(field, bytes)| {
        Ok((
            field,
            decode(&bytes, || format!("an error of workflow {id}"))?,
        ))
    })
    .collect()
}
