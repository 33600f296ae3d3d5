//! Writes what a store has in the latest format, workflow by workflow, while servers use the store.
//!
//! First the store says that it is migrated: from then on servers write the latest format. Then each workflow is written again, guarded as any
//! change is. So a migration can stop anywhere, and begin again.

use bytes::Bytes;

use super::Store;
use super::change_notice::ServerId;
use super::error::StoreError;
use super::query::{EncodedSummary, RowSet};
use super::subscription::Broadcast;
use crate::codec::change::{Applied, Change, ResultField, Stored};
use crate::codec::format::Format;
use crate::codec::record::decode;
use crate::codec::rows::{Row, Section, workflow_of};
use crate::id::{JobIndex, Partition, WorkflowId};
use crate::state::AttemptError;
use crate::time::Timestamp;
use crate::workflow::Workflow;

/// How many workflows are looked at with one read.
const PAGE: usize = 256;
/// The bytes of graphs at which a write takes no more workflows.
const PIECE: u64 = 1 << 20;
/// How many workflows are read and written together.
const TOGETHER: usize = 64;
/// How often a workflow is tried that servers write at the same time. The next pass tries it again.
const ATTEMPTS: usize = 5;
/// How many errors of a job are kept.
const ERRORS: u8 = 10;
/// How many jobs' errors are read with one command.
const JOBS: usize = 100;

/// A workflow that is to be written again.
struct ReadWorkflow {
    workflow: Workflow,
    /// The jobs whose states the store has.
    jobs: Vec<JobIndex>,
}

/// Errors of attempts, each with its place.
type Errors = Vec<(ResultField, AttemptError)>;

/// Workflows in an earlier format, and where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Earlier {
    /// Their ids.
    pub ids: Vec<WorkflowId>,
    /// None: this was the last page.
    pub next: Option<Row>,
}

/// What became of workflows that were to be written again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rewritten {
    /// The number of those that were written.
    pub done: u64,
    /// Those that cannot be read, with the reason.
    pub unreadable: Vec<(WorkflowId, StoreError)>,
}

impl Rewritten {
    fn add(&mut self, more: Self) {
        self.done += more.done;
        self.unreadable.extend(more.unreadable);
    }
}

impl Store {
    /// Whether there is nothing to migrate.
    #[must_use]
    pub fn is_latest(&self) -> bool {
        self.format() == Format::LATEST && !self.is_migrating()
    }

    /// Makes all servers write the latest format. They notice it when they look at the store next. Workflows are not changed yet.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn begin_migration(&self) -> Result<(), StoreError> {
        // A migration that an earlier version began goes on from there to the latest format.
        if self.is_migrating() && self.format() == Format::LATEST {
            return Ok(());
        }
        match self {
            #[cfg(feature = "test-util")]
            Self::Simulated(_) => {}
            Self::Sqlite(store) => store.begin_migration().await?,
            Self::Redis(store) => store.begin_migration().await?,
        }
        // Whoever hears it looks at what the store is. No server has this name.
        self.call_out(ServerId(0), Broadcast::Queues).await;
        Ok(())
    }

    /// Says that nothing of an earlier format is left.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn end_migration(&self) -> Result<(), StoreError> {
        match self {
            #[cfg(feature = "test-util")]
            Self::Simulated(_) => Ok(()),
            Self::Sqlite(store) => store.end_migration().await,
            Self::Redis(store) => store.end_migration().await,
        }
    }

    /// A page of the workflows of a partition that are not in the latest format, after the row at which the last page ended.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn earlier(
        &self,
        partition: Partition,
        after: Option<&Row>,
    ) -> Result<Earlier, StoreError> {
        let begin = Section::All.prefix();
        let after = Some(after.unwrap_or(&begin).as_slice());
        let mut rows = self.rows(partition, RowSet::Index, after, PAGE).await?;
        rows.retain(|row| row.starts_with(&begin));
        let next = rows.last().filter(|_| rows.len() == PAGE).cloned();
        let mut ids: Vec<WorkflowId> = rows.iter().filter_map(|row| workflow_of(row)).collect();
        let heads = self.heads(&ids).await.into_iter();
        let heads: Vec<Option<EncodedSummary>> = heads.collect::<Result<_, _>>()?;
        let mut heads = heads.iter();
        ids.retain(|_| {
            heads
                .next()
                .is_some_and(|head| head.as_ref().is_some_and(is_earlier))
        });
        Ok(Earlier { ids, next })
    }

    /// Writes workflows of one partition again, in the format of the store. Nothing else of them changes.
    ///
    /// # Errors
    /// The store cannot be read or written. Some of them may be written.
    pub async fn rewrite(
        &self,
        partition: Partition,
        ids: &[WorkflowId],
        now: Timestamp,
    ) -> Result<Rewritten, StoreError> {
        let mut rewritten = Rewritten::default();
        let mut piece = Vec::new();
        let mut bytes = 0;
        for (&id, size) in ids.iter().zip(self.sizes(ids).await?) {
            if !piece.is_empty() && (bytes + size > PIECE || piece.len() == TOGETHER) {
                let piece = std::mem::take(&mut piece);
                rewritten.add(self.rewrite_piece(partition, piece, now).await?);
                bytes = 0;
            }
            piece.push(id);
            bytes += size;
        }
        rewritten.add(self.rewrite_piece(partition, piece, now).await?);
        Ok(rewritten)
    }

    async fn rewrite_piece(
        &self,
        partition: Partition,
        mut ids: Vec<WorkflowId>,
        now: Timestamp,
    ) -> Result<Rewritten, StoreError> {
        let mut rewritten = Rewritten::default();
        for _ in 0..ATTEMPTS {
            if ids.is_empty() {
                break;
            }
            let changes = self.rewriting_changes(&ids, now, &mut rewritten).await?;
            let applied = self.apply(partition, &changes).await?;
            ids.clear();
            for (change, applied) in changes.iter().zip(applied) {
                if applied == Applied::Done {
                    rewritten.done += 1;
                } else {
                    ids.push(change.workflow);
                }
            }
        }
        Ok(rewritten)
    }

    /// Reads workflows, and makes the changes that write them again. Those that cannot be read are added to `rewritten`.
    async fn rewriting_changes(
        &self,
        ids: &[WorkflowId],
        now: Timestamp,
        rewritten: &mut Rewritten,
    ) -> Result<Vec<Change>, StoreError> {
        let read = self.read_each(ids, rewritten).await?;
        let errors = self.errors(&read).await?;
        let mut changes = Vec::with_capacity(ids.len());
        for (ReadWorkflow { mut workflow, jobs }, errors) in read.into_iter().zip(errors) {
            match errors {
                Ok(errors) => {
                    workflow.rewrite(&jobs, errors);
                    changes.extend(workflow.change(fastrand::u32(..), self.style(), now));
                }
                Err(error) => rewritten.unreadable.push((workflow.id, error)),
            }
        }
        Ok(changes)
    }

    /// Reads workflows. Those that cannot be read are added to `rewritten`.
    async fn read_each(
        &self,
        ids: &[WorkflowId],
        rewritten: &mut Rewritten,
    ) -> Result<Vec<ReadWorkflow>, StoreError> {
        let mut read = Vec::with_capacity(ids.len());
        for (&id, loaded) in ids.iter().zip(self.load_each(ids).await?) {
            match loaded.and_then(|stored| read_workflow(id, stored)) {
                Ok(workflow) => read.extend(workflow),
                Err(error) => rewritten.unreadable.push((id, error)),
            }
        }
        Ok(read)
    }

    /// Reads workflows. One that is corrupt fails alone.
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

    /// The errors of attempts that are kept of each workflow. Those that cannot be read fail alone.
    async fn errors(
        &self,
        read: &[ReadWorkflow],
    ) -> Result<Vec<Result<Errors, StoreError>>, StoreError> {
        let mut places = Vec::new();
        let mut wanted: Vec<(WorkflowId, Vec<ResultField>)> = Vec::new();
        for (place, ReadWorkflow { workflow, jobs }) in read.iter().enumerate() {
            for jobs in jobs.chunks(JOBS) {
                places.push(place);
                wanted.push((workflow.id, jobs.iter().flat_map(error_fields).collect()));
            }
        }
        let mut errors: Vec<Result<Errors, StoreError>> = vec![Ok(Vec::new()); read.len()];
        let mut places = places.into_iter();
        for wanted in wanted.chunks(TOGETHER) {
            let found = self.results(wanted).await?;
            for (((id, fields), values), place) in wanted.iter().zip(found).zip(&mut places) {
                match (&mut errors[place], decoded_errors(*id, fields, values)) {
                    (Ok(all), Ok(more)) => all.extend(more),
                    (all, Err(error)) => *all = Err(error),
                    (Err(_), Ok(_)) => {}
                }
            }
        }
        Ok(errors)
    }
}

/// Whether a workflow is in an earlier format. Its label is written when all of it is, and only then; that of a small workflow has a format
/// that changes only then. Its meta tells of a server that had not noticed the migration yet.
fn is_earlier(head: &EncodedSummary) -> bool {
    let is_latest = |record: &[u8]| matches!(Format::of_record(record), Ok((Format::LATEST, _)));
    !is_latest(&head.label) || !is_latest(&head.meta)
}

/// Reads a workflow. None: it does not exist any more.
fn read_workflow(
    id: WorkflowId,
    stored: Option<Stored>,
) -> Result<Option<ReadWorkflow>, StoreError> {
    let Some(stored) = stored else {
        return Ok(None);
    };
    let workflow = Workflow::read(id, &stored)?;
    let jobs = if id.is_small() {
        // One value has them all.
        (0..workflow.jobs.len() as u32).map(JobIndex).collect()
    } else {
        stored.state.jobs.iter().map(|(job, _)| *job).collect()
    };
    Ok(Some(ReadWorkflow { workflow, jobs }))
}

fn error_fields(job: &JobIndex) -> impl Iterator<Item = ResultField> + use<> {
    let job = *job;
    (0..ERRORS).map(move |place| ResultField::Error(job, place))
}

/// The errors that are there, of these fields of a workflow.
fn decoded_errors(
    id: WorkflowId,
    fields: &[ResultField],
    values: Vec<Option<Bytes>>,
) -> Result<Errors, StoreError> {
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
