//! Writes what a store has in the latest format, workflow by workflow, while servers use the store.
//!
//! First the store says that it is migrated: from then on servers write the latest format, and remove ready rows of all. Then each workflow
//! is written again, guarded as any change is. So it can stop anywhere, and begin again.

use super::Store;
use super::announcement::ServerId;
use super::ears::CallOut;
use super::error::StoreError;
use super::query::RowSet;
use crate::id::{JobIndex, Partition, WorkflowId};
use crate::record::change::{Applied, ResultField, Stored};
use crate::record::codec::decode;
use crate::record::format::Format;
use crate::record::rows::{Row, Section, workflow_of};
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

/// A workflow, and the jobs whose states the store has.
type Read = (Workflow, Vec<JobIndex>);
/// Errors of attempts, and where they are.
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
    /// How many are in the latest format now.
    pub done: u64,
    /// Those that cannot be read, with the reason.
    pub unreadable: Vec<(WorkflowId, StoreError)>,
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
        match self {
            // One that an earlier version began goes on from there to the latest format.
            _ if self.is_migrating() && self.format() == Format::LATEST => return Ok(()),
            #[cfg(feature = "test-util")]
            Self::Simulated(_) => {}
            Self::Sqlite(store) => store.begin_migration().await?,
            Self::Redis(store) => store.begin_migration().await?,
        }
        // Whoever hears it looks at what the store is. No server has this name.
        self.call_out(ServerId(0), CallOut::Queues).await;
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
        let rows = self
            .rows(
                partition,
                RowSet::Index,
                Some(after.unwrap_or(&begin)),
                PAGE,
            )
            .await?;
        let is_full = rows.len() == PAGE;
        let lasting: Vec<Row> = rows
            .into_iter()
            .take_while(|row| row.starts_with(&begin))
            .collect();
        let next = lasting
            .last()
            .filter(|_| is_full && lasting.len() == PAGE)
            .cloned();
        let ids: Vec<WorkflowId> = lasting.iter().filter_map(|row| workflow_of(row)).collect();
        let heads = self
            .heads(&ids)
            .await
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        // The label is written when all of a workflow is, and only then; that of a small workflow has a format that changes only then. The
        // meta tells of a server that had not noticed yet.
        let is_latest =
            |record: &[u8]| matches!(Format::of_record(record), Ok((Format::LATEST, _)));
        let earlier = ids.into_iter().zip(heads).filter(|(_, head)| {
            head.as_ref()
                .is_some_and(|head| !is_latest(&head.label) || !is_latest(&head.meta))
        });
        Ok(Earlier {
            ids: earlier.map(|(id, _)| id).collect(),
            next,
        })
    }

    /// Writes workflows of one partition again, in the latest format. Nothing else of them changes.
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
        let sizes = self.sizes(ids).await?;
        let (mut piece, mut bytes) = (Vec::new(), 0);
        for (&id, size) in ids.iter().zip(sizes) {
            if !piece.is_empty() && (bytes + size > PIECE || piece.len() == TOGETHER) {
                self.rewrite_piece((partition, now), std::mem::take(&mut piece), &mut rewritten)
                    .await?;
                bytes = 0;
            }
            piece.push(id);
            bytes += size;
        }
        self.rewrite_piece((partition, now), piece, &mut rewritten)
            .await?;
        Ok(rewritten)
    }

    async fn rewrite_piece(
        &self,
        (partition, now): (Partition, Timestamp),
        mut ids: Vec<WorkflowId>,
        rewritten: &mut Rewritten,
    ) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            if ids.is_empty() {
                break;
            }
            let read = self.read_each(&ids, rewritten).await?;
            let errors = self.errors(&read).await?;
            let mut changes = Vec::with_capacity(ids.len());
            for ((mut workflow, jobs), errors) in read.into_iter().zip(errors) {
                match errors {
                    Ok(errors) => workflow.rewrite(&jobs, errors),
                    Err(error) => {
                        rewritten.unreadable.push((workflow.id, error));
                        continue;
                    }
                }
                changes.extend(workflow.change(fastrand::u32(..), self.style(), now));
            }
            let applied = self.apply(partition, &changes).await?;
            rewritten.done += applied
                .iter()
                .filter(|applied| **applied == Applied::Done)
                .count() as u64;
            let refused = changes
                .iter()
                .zip(applied)
                .filter(|(_, applied)| *applied != Applied::Done);
            ids = refused.map(|(change, _)| change.workflow).collect();
        }
        Ok(())
    }

    /// Reads workflows, each with the jobs whose states the store has.
    async fn read_each(
        &self,
        ids: &[WorkflowId],
        rewritten: &mut Rewritten,
    ) -> Result<Vec<Read>, StoreError> {
        let mut read = Vec::with_capacity(ids.len());
        for (&id, loaded) in ids.iter().zip(self.load_each(ids).await?) {
            let workflow = loaded.and_then(|stored| {
                let Some(stored) = stored else {
                    return Ok(None);
                };
                let workflow = Workflow::read(id, &stored)?;
                let jobs = match id.is_small() {
                    // One value has them all.
                    true => (0..workflow.jobs.len())
                        .map(|at| JobIndex(at as u32))
                        .collect(),
                    false => stored.state.jobs.iter().map(|(job, _)| *job).collect(),
                };
                Ok(Some((workflow, jobs)))
            });
            match workflow {
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
    async fn errors(&self, read: &[Read]) -> Result<Vec<Result<Errors, StoreError>>, StoreError> {
        let parts = read.iter().enumerate().flat_map(|(at, (workflow, jobs))| {
            jobs.chunks(JOBS).map(move |jobs| {
                (
                    at,
                    (
                        workflow.id,
                        jobs.iter().flat_map(|&job| error_fields(job)).collect(),
                    ),
                )
            })
        });
        let (places, wanted): (Vec<usize>, Vec<(WorkflowId, Vec<ResultField>)>) = parts.unzip();
        let mut errors: Vec<Result<Errors, StoreError>> =
            read.iter().map(|_| Ok(Vec::new())).collect();
        for (places, wanted) in places.chunks(TOGETHER).zip(wanted.chunks(TOGETHER)) {
            for ((&place, (id, fields)), found) in
                places.iter().zip(wanted).zip(self.results(wanted).await?)
            {
                let kept = fields
                    .iter()
                    .zip(found)
                    .filter_map(|(field, bytes)| Some((*field, bytes?)));
                let what = || format!("an error of workflow {id}");
                let decoded: Result<Errors, StoreError> = kept
                    .map(|(field, bytes)| Ok((field, decode(&bytes, what)?)))
                    .collect();
                match (&mut errors[place], decoded) {
                    (Ok(all), Ok(more)) => all.extend(more),
                    (all, Err(error)) => *all = Err(error),
                    (Err(_), Ok(_)) => {}
                }
            }
        }
        Ok(errors)
    }
}

fn error_fields(job: JobIndex) -> impl Iterator<Item = ResultField> {
    (0..ERRORS).map(move |place| ResultField::Error(job, place))
}
