//! Lists and counts of workflows, with filters, in order of creation. A page takes two round trips,
//! however many workflows exist.

pub(crate) mod count;
pub(crate) mod failures;
pub(crate) mod highlights;
pub(crate) mod match_rank;
pub(crate) mod partial;
pub(crate) mod query;
pub(crate) mod queue_states;
pub(crate) mod running;
pub(crate) mod search;
pub(crate) mod seen_tags;
pub(crate) mod waiting_keys;

use hashbrown::HashMap;
use tracing::warn;

use self::highlights::has_highlights;
use self::partial::MissingPartitions;
use self::query::{Cursor, Query};
use super::Engine;
use super::context::error::EngineError;
use crate::codec::{StoreError, decode, decode_compact};
use crate::model::workflow_state::Job;
use crate::model::{Label, Meta, Partition, WorkflowId};
use crate::store::{EncodedSummary, Order, RowRange};

/// Maximum reads of index rows for one page, when a filter without an index skips many rows.
const MAX_READS: usize = 20;
/// Minimum rows of such a read, so that a small page does not end after a few rows without a match.
const MIN_FILTERED_ROWS: usize = 100;

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The workflows.
    pub items: Vec<ListedWorkflow>,
    /// The start of the next page. `None` if this is the last page.
    pub next: Option<Cursor>,
    /// Partitions that did not answer: their workflows are left out.
    pub missing: MissingPartitions,
    /// Number of workflows whose failed jobs could not be read, of a query by failed jobs.
    pub unread: usize,
    /// The jobs of small workflows in which something failed or runs.
    small_jobs: HashMap<WorkflowId, Vec<Job>>,
}

/// A workflow as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedWorkflow {
    /// Its id.
    pub workflow: WorkflowId,
    /// Name and tags.
    pub label: Label,
    /// The state without the jobs.
    pub meta: Meta,
}

impl Page {
    /// Adds the workflows of another page.
    fn append(&mut self, other: Self) {
        self.items.extend(other.items);
        self.small_jobs.extend(other.small_jobs);
        self.missing.add(other.missing);
        self.unread += other.unread;
    }
}

impl Engine {
    /// One page of workflows.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list(&self, query: &Query) -> Result<Page, EngineError> {
        if query.failure.is_some() {
            return self.list_failed(query).await;
        }
        self.list_indexed(query).await
    }

    /// One page of workflows, without a filter by failed jobs.
    async fn list_indexed(&self, query: &Query) -> Result<Page, EngineError> {
        let limit = query.limit.max(1);
        let mut page = Page {
            items: Vec::with_capacity(limit),
            next: query.after,
            ..Page::default()
        };
        for _ in 0..MAX_READS {
            let remaining = limit - page.items.len();
            let wanted = if query.filter.needs_labels() {
                remaining.max(MIN_FILTERED_ROWS)
            } else {
                remaining
            };
            let (ids, more) = self
                .page_ids(query, page.next, wanted, &mut page.missing)
                .await?;
            page.next = ids.last().copied().filter(|_| more);
            self.add_listed(query, &ids, &mut page).await?;
            if page.next.is_none() || page.items.len() >= limit || !query.filter.needs_labels() {
                break;
            }
        }
        if page.items.len() > limit {
            page.items.truncate(limit);
            page.next = page.items.last().map(|last| last.workflow);
        }
        Ok(page)
    }

    /// Adds those of these workflows to a page that the filter admits.
    async fn add_listed(
        &self,
        query: &Query,
        ids: &[WorkflowId],
        page: &mut Page,
    ) -> Result<(), StoreError> {
        let queried: Vec<Partition> = ids.iter().map(WorkflowId::partition).collect();
        let heads = self.store().summaries(ids).await;
        let heads = self.split_indexed_answers(&queried, heads, &mut page.missing)?;
        let first = page.items.len();
        for (at, head) in heads {
            let id = ids[at];
            // The workflow may have been removed between the two reads.
            let Some(head) = head else { continue };
            match decode_listed(id, &head) {
                Ok(listed) if query.filter.admits(&listed.label, listed.meta.status) => {
                    if has_highlights(&listed.meta) {
                        page.small_jobs.extend(small_jobs(id, &head));
                    }
                    page.items.push(listed);
                }
                Ok(_) => {}
                // A workflow that cannot be read must not hide the others.
                Err(error) => warn!(workflow = %id, %error, "a workflow is left out of a list"),
            }
        }
        self.core
            .seen_tags
            .record(page.items[first..].iter().map(|item| &item.label));
        Ok(())
    }

    /// The next `limit` ids in order, and whether there are more.
    async fn page_ids(
        &self,
        query: &Query,
        after: Option<Cursor>,
        limit: usize,
        missing: &mut MissingPartitions,
    ) -> Result<(Vec<WorkflowId>, bool), StoreError> {
        if let Some(mut ids) = query.filter.listed_ids(query.order, after) {
            let more = ids.len() > limit;
            ids.truncate(limit);
            return Ok((ids, more));
        }
        let spans = query.filter.ranges(query.order, after);
        self.ids_in(&spans, query.order, limit, missing).await
    }

    /// The first `limit` ids of these row ranges in order, and whether there are more.
    async fn ids_in(
        &self,
        spans: &[RowRange],
        order: Order,
        limit: usize,
        missing: &mut MissingPartitions,
    ) -> Result<(Vec<WorkflowId>, bool), StoreError> {
        let (partitions, unreadable) = self.readable_partitions();
        missing.add(unreadable);
        let ranges = ranges_in(&partitions, spans);
        // One more row than the page takes shows whether there is a next page.
        let full = limit + 1;
        let per_partition = rows_per_partition(full, partitions.len());
        let mut found = self
            .read_pages(&ranges, order, per_partition, missing)
            .await?;
        let (ids, _) = merge(&found, order, full);
        let mut retried = Vec::new();
        if per_partition < full {
            retried = incomplete_reads(&found, &ids, per_partition);
        }
        if !retried.is_empty() {
            let ranges: Vec<(Partition, RowRange)> =
                retried.iter().map(|&at| ranges[at].clone()).collect();
            for (at, rows) in retried
                .into_iter()
                .zip(self.read_pages(&ranges, order, full, missing).await?)
            {
                found[at] = rows;
            }
        }
        Ok(merge(&found, order, limit))
    }

    /// The rows of each question; empty if its partition did not answer.
    async fn read_pages(
        &self,
        ranges: &[(Partition, RowRange)],
        order: Order,
        limit: usize,
        missing: &mut MissingPartitions,
    ) -> Result<Vec<Vec<WorkflowId>>, StoreError> {
        let queried: Vec<Partition> = ranges.iter().map(|(partition, _)| *partition).collect();
        let rows = self.store().page(ranges, order, limit).await;
        let mut all = vec![Vec::new(); ranges.len()];
        for (at, rows) in self.split_indexed_answers(&queried, rows, missing)? {
            all[at] = rows;
        }
        Ok(all)
    }
}

pub(super) fn decode_listed(
    workflow: WorkflowId,
    head: &EncodedSummary,
) -> Result<ListedWorkflow, StoreError> {
    let label: Label = decode(&head.label, || format!("the label of workflow {workflow}"))?;
    let meta: Meta = decode(&head.meta, || format!("the state of workflow {workflow}"))?;
    Ok(ListedWorkflow {
        workflow,
        label,
        meta,
    })
}

/// The jobs of a workflow. `None` if it is not small.
fn small_jobs(id: WorkflowId, head: &EncodedSummary) -> Option<(WorkflowId, Vec<Job>)> {
    let value = decode_compact(&head.meta, || format!("the state of workflow {id}"));
    Some((id, value.ok()?.jobs?))
}

/// Each row range in each partition.
fn ranges_in(partitions: &[Partition], spans: &[RowRange]) -> Vec<(Partition, RowRange)> {
    let in_each = |span| {
        partitions
            .iter()
            .map(move |&at| (at, RowRange::clone(span)))
    };
    spans.iter().flat_map(in_each).collect()
}

/// The reads of `limit` rows whose last row is in the page: unread rows may belong to it as well.
fn incomplete_reads(found: &[Vec<WorkflowId>], page: &[WorkflowId], limit: usize) -> Vec<usize> {
    let may_lack_rows = |rows: &Vec<WorkflowId>| {
        rows.len() == limit && rows.last().is_some_and(|last| page.contains(last))
    };
    (0..found.len())
        .filter(|&at| may_lack_rows(&found[at]))
        .collect()
}

/// Merges sorted lists into the first `limit` ids. Also returns whether there are more.
fn merge(found: &[Vec<WorkflowId>], order: Order, limit: usize) -> (Vec<WorkflowId>, bool) {
    let mut ids = found.concat();
    query::sort(&mut ids, order);
    // A workflow whose status changes between two reads may be in two lists.
    ids.dedup();
    let more = ids.len() > limit;
    ids.truncate(limit);
    (ids, more)
}

/// Rows to read of each partition so that the first `wanted` rows are almost always among them. It
/// is the mean plus seven standard deviations of a Poisson distribution. For 100 rows of 16
/// partitions it is too few once in a million pages.
fn rows_per_partition(wanted: usize, partitions: usize) -> usize {
    let mean = wanted as f64 / partitions.max(1) as f64;
    ((mean + 7.0 * mean.sqrt()).ceil() as usize + 1).min(wanted)
}
