//! Search for workflows by a text. Names, an exact tag, ids and keys are found by the index, however
//! old the workflow is. Other texts are found by reading the workflows, a bounded number at a time.
//!
//! A search has two positions: one among the workflows that the index finds, and one among those
//! that it reads. The second leaves out what the first finds, so each match is found once.

mod position;
mod text;

use self::position::Position;
pub use self::position::SearchCursor;
use self::text::SearchIndex;
use super::failures::FailureScan;
use super::partial::MissingPartitions;
use super::query::{self, Filter, Query};
use super::{ListedWorkflow, Page};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::model::{Status, WorkflowId};
use crate::store::Order;

/// Workflows that one call reads to find a text.
const MAX_SEARCHED: usize = 10_000;
/// Workflows that one read of the store takes.
const READ_ROWS: usize = 1_000;

/// A page of workflows that match a text.
#[derive(Debug, Default)]
pub struct SearchPage {
    /// The workflows, in order within the page. A workflow that the index finds may come before newer
    /// ones of later pages. `unread` counts failed workflows whose errors could not be read.
    pub page: Page,
    /// The start of the next page. `None` if this is the last page.
    pub next: Option<SearchCursor>,
    /// How many workflows were read.
    pub searched: usize,
    /// Whether the search ended because it may not read more workflows in one call.
    pub is_cut: bool,
    /// Names that contain the text, the best first.
    pub names: Vec<String>,
    /// The workflow with the text as its key.
    pub by_key: Option<WorkflowId>,
}

/// How many workflows match a text.
#[derive(Debug, Default)]
pub struct FoundNumbers {
    /// Numbers by status.
    pub by_status: Vec<(Status, u64)>,
    /// How many workflows were read.
    pub searched: usize,
    /// Whether there may be more.
    pub is_cut: bool,
    /// Number of failed workflows whose errors could not be read.
    pub unread: usize,
    /// Partitions that did not answer.
    pub missing: MissingPartitions,
}

/// Matches of one of the two positions, and where it is after them.
#[derive(Default)]
struct Matches {
    found: Page,
    end: Position,
}

/// The part that reads workflows.
#[derive(Default)]
struct Scan {
    matches: Matches,
    searched: usize,
    max_searched: usize,
    failures: FailureScan,
}

impl Engine {
    /// One page of workflows that match a text; `query.after` is not used.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn search(
        &self,
        query: &Query,
        text: &str,
        after: Option<SearchCursor>,
    ) -> Result<SearchPage, EngineError> {
        let chosen = after.as_ref().map(|after| after.names.as_slice());
        let index = self.search_index(&query.filter, text, chosen).await?;
        let after = after.unwrap_or_default();
        self.search_with(query, index, after, MAX_SEARCHED).await
    }

    /// The first workflows that match a text, of fewer that are read: for an answer at each letter
    /// that is typed.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn suggest(&self, query: &Query, text: &str) -> Result<SearchPage, EngineError> {
        let index = self.search_index(&query.filter, text, None).await?;
        let start = SearchCursor::default();
        self.search_with(query, index, start, READ_ROWS).await
    }

    /// The numbers of workflows that match a text.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn count_found(
        &self,
        filter: &Filter,
        text: &str,
    ) -> Result<FoundNumbers, EngineError> {
        let mut index = self.search_index(filter, text, None).await?;
        let mut missing = MissingPartitions::default();
        let statuses = filter.wanted_statuses();
        let mut by_status: Vec<(Status, u64)> = statuses.iter().map(|&each| (each, 0)).collect();
        let spans = index.name_ranges(&statuses, filter.bounds(Order::NewestFirst, None));
        let numbers = self.sum_counts(&spans, &mut missing).await?;
        for (at, number) in numbers.into_iter().enumerate() {
            by_status[at % statuses.len()].1 += number;
        }
        index.leave_out_names();
        let query = Query {
            filter: filter.clone(),
            limit: MAX_SEARCHED,
            ..Query::default()
        };
        let start = SearchCursor::default();
        let rest = self.search_with(&query, index, start, MAX_SEARCHED).await?;
        for item in &rest.page.items {
            let own = by_status
                .iter_mut()
                .find(|(each, _)| *each == item.meta.status);
            own.into_iter().for_each(|(_, sum)| *sum += 1);
        }
        missing.add(rest.page.missing);
        Ok(FoundNumbers {
            by_status,
            searched: rest.searched,
            is_cut: rest.next.is_some(),
            unread: rest.page.unread,
            missing,
        })
    }

    async fn search_with(
        &self,
        query: &Query,
        index: SearchIndex,
        after: SearchCursor,
        max_searched: usize,
    ) -> Result<SearchPage, EngineError> {
        let limit = query.limit.max(1);
        let mut indexed = self.read_indexed(query, &index, after.indexed).await?;
        // A full page has no room for what is after its last workflow.
        let full_at = indexed.found.items.get(limit - 1);
        let full_at = full_at.map(|last| last.workflow);
        let mut scan = Scan {
            max_searched,
            ..Scan::default()
        };
        scan.matches.end = after.scanned;
        self.scan(query, &index, full_at, &mut scan).await?;
        let mut ids = [&indexed, &scan.matches].map(Matches::ids).concat();
        query::sort(&mut ids, query.order);
        ids.truncate(limit);
        let last = ids.last().copied();
        let next = SearchCursor {
            indexed: indexed.position_after(query.order, last, after.indexed),
            scanned: scan
                .matches
                .position_after(query.order, last, after.scanned),
            names: index.name_hashes(),
        };
        let is_cut = scan.is_cut();
        let mut page = std::mem::take(&mut indexed.found);
        page.append(scan.matches.found);
        page.items.sort_unstable_by(|one, other| {
            query::compare(query.order, one.workflow, other.workflow)
        });
        page.items.truncate(limit);
        page.unread = scan.failures.unread();
        Ok(SearchPage {
            page,
            next: Some(next).filter(|next| !next.is_end()),
            searched: scan.searched,
            is_cut,
            by_key: index.by_key,
            names: index.into_names(),
        })
    }

    /// Reads workflows that the index finds.
    async fn read_indexed(
        &self,
        query: &Query,
        index: &SearchIndex,
        after: Position,
    ) -> Result<Matches, EngineError> {
        let mut matches = Matches {
            found: Page::default(),
            end: Position::End,
        };
        let Some(after) = after.cursor() else {
            return Ok(matches);
        };
        let spans = index.ranges(&query.filter, query.order, after);
        if spans.is_empty() {
            return Ok(matches);
        }
        let limit = query.limit.max(1);
        let missing = &mut matches.found.missing;
        let (ids, more) = self.ids_in(&spans, query.order, limit, missing).await?;
        if let Some(last) = ids.last().filter(|_| more) {
            matches.end = Position::After(*last);
        }
        for ids in ids.chunks(READ_ROWS) {
            self.add_listed(query, ids, &mut matches.found).await?;
        }
        matches.found.items.retain(|item| index.finds(item));
        Ok(matches)
    }

    /// Reads workflows in order until a page is full.
    async fn scan(
        &self,
        query: &Query,
        index: &SearchIndex,
        full_at: Option<WorkflowId>,
        scan: &mut Scan,
    ) -> Result<(), EngineError> {
        let limit = query.limit.max(1);
        while let Some(after) = scan.matches.end.cursor() {
            let passed = |(at, end)| query::compare(query.order, at, end).is_ge();
            let is_full =
                scan.matches.found.items.len() >= limit || after.zip(full_at).is_some_and(passed);
            if is_full || scan.is_cut() {
                break;
            }
            // The first read is small, because a text in most names fills the page.
            let rows = if scan.searched == 0 {
                limit.clamp(100, READ_ROWS)
            } else {
                READ_ROWS
            };
            let rows = rows.min(scan.max_searched - scan.searched);
            let mut batch = Page::default();
            let (ids, more) = self
                .page_ids(query, after, rows, &mut batch.missing)
                .await?;
            scan.searched += ids.len();
            scan.matches.end = match ids.last() {
                Some(last) if more => Position::After(*last),
                _ => Position::End,
            };
            self.add_listed(query, &ids, &mut batch).await?;
            self.add_matches(query, index, batch, scan).await?;
        }
        Ok(())
    }

    /// Adds those workflows of a batch that match. If no more errors may be read, the scan ends
    /// before the first workflow whose errors were not read.
    async fn add_matches(
        &self,
        query: &Query,
        index: &SearchIndex,
        mut batch: Page,
        scan: &mut Scan,
    ) -> Result<(), EngineError> {
        let items = std::mem::take(&mut batch.items).into_iter();
        let items = items.filter(|item| !index.skips(item));
        let (mut found, others): (Vec<_>, Vec<_>) =
            items.partition(|item| index.is_in_label(&item.label));
        let is_failed = |item: &ListedWorkflow| item.meta.status == Status::Failed;
        batch.items = others.into_iter().filter(is_failed).collect();
        let (read, failures) = self.read_failures(&batch, &mut scan.failures).await?;
        if read < batch.items.len() {
            batch.items.truncate(read);
            let last = batch.items.last().map(|last| last.workflow);
            let is_read = |item: &ListedWorkflow| {
                last.is_some_and(|last| query::compare(query.order, item.workflow, last).is_le())
            };
            found.retain(is_read);
            scan.matches.end = last.map_or(scan.matches.end, Position::After);
        }
        let matches = |item: &ListedWorkflow| {
            let failed = failures.get(&item.workflow);
            failed.is_some_and(|failed| failed.iter().any(|one| index.is_in_failure(one)))
        };
        batch.items.retain(matches);
        batch.items.extend(found);
        let mut jobs = std::mem::take(&mut batch.small_jobs);
        for item in &batch.items {
            batch.small_jobs.extend(jobs.remove_entry(&item.workflow));
        }
        scan.matches.found.append(batch);
        Ok(())
    }
}

impl Matches {
    fn ids(&self) -> Vec<WorkflowId> {
        self.found.items.iter().map(|item| item.workflow).collect()
    }

    /// The position after a page that ends with the workflow `last`.
    fn position_after(&self, order: Order, last: Option<WorkflowId>, before: Position) -> Position {
        let is_in_page = |id| last.is_some_and(|last| query::compare(order, id, last).is_le());
        let items = self.found.items.iter().map(|item| item.workflow);
        if items.clone().all(is_in_page) {
            return self.end;
        }
        let in_page = items.filter(|id| is_in_page(*id));
        let latest = in_page.max_by(|one, other| query::compare(order, *one, *other));
        latest.map_or(before, Position::After)
    }
}

impl Scan {
    /// Whether one call may read no more.
    fn is_cut(&self) -> bool {
        let is_over = self.searched >= self.max_searched || self.failures.is_full();
        is_over && self.matches.end != Position::End
    }
}
