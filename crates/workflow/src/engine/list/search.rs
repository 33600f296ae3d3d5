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
use super::Page;
use super::partial::MissingPartitions;
use super::query::{self, Filter, Query};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::model::{Status, WorkflowId};
use crate::store::Order;

/// Workflows that one call reads to find a text.
const MAX_SEARCHED: usize = 10_000;
/// Workflows that one read of the store takes.
const READ_ROWS: usize = 1_000;
/// Failed workflows whose errors one call reads, about. It ends after them.
const MAX_ERRORS: usize = 1_000;

/// A page of workflows that match a text.
#[derive(Debug, Default)]
pub struct SearchPage {
    /// The workflows in order. Those that the index finds may be further on than the other ones.
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
    errors: usize,
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
        let index = self.search_index(&query.filter, text).await?;
        self.search_with(query, &index, after).await
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
        let mut index = self.search_index(filter, text).await?;
        let mut missing = MissingPartitions::default();
        let statuses = filter.wanted_statuses();
        let mut by_status: Vec<(Status, u64)> = statuses.iter().map(|&each| (each, 0)).collect();
        let spans = index.name_ranges(&statuses, filter.bounds(Order::NewestFirst, None));
        let numbers = self.sum_counts(&spans, &mut missing).await?;
        for numbers in numbers.chunks(statuses.len().max(1)) {
            for ((_, sum), number) in by_status.iter_mut().zip(numbers) {
                *sum += number;
            }
        }
        index.leave_out_names();
        let query = Query {
            filter: filter.clone(),
            limit: MAX_SEARCHED,
            ..Query::default()
        };
        let rest = self.search_with(&query, &index, None).await?;
        for item in &rest.page.items {
            for (_, sum) in by_status
                .iter_mut()
                .filter(|(each, _)| *each == item.meta.status)
            {
                *sum += 1;
            }
        }
        missing.add(rest.page.missing);
        Ok(FoundNumbers {
            by_status,
            searched: rest.searched,
            is_cut: rest.next.is_some(),
            missing,
        })
    }

    async fn search_with(
        &self,
        query: &Query,
        index: &SearchIndex,
        after: Option<SearchCursor>,
    ) -> Result<SearchPage, EngineError> {
        let after = after.unwrap_or_default();
        let limit = query.limit.max(1);
        let indexed = self.read_indexed(query, index, after.indexed).await?;
        // A full page has no room for what is after its last workflow.
        let full_at = indexed.found.items.get(limit - 1);
        let full_at = full_at.map(|last| last.workflow);
        let scan = self.scan(query, index, after.scanned, full_at).await?;
        let parts = [&indexed, &scan.matches].map(|part| part.found.items.as_slice());
        let mut items = parts.concat();
        items.sort_unstable_by(|one, other| {
            query::compare(query.order, one.workflow, other.workflow)
        });
        items.truncate(limit);
        let last = items.last().map(|last| last.workflow);
        let next = SearchCursor {
            indexed: indexed.position_after(query.order, last, after.indexed),
            scanned: scan
                .matches
                .position_after(query.order, last, after.scanned),
        };
        let is_cut = scan.is_cut();
        let mut page = indexed.found;
        page.missing.add(scan.matches.found.missing);
        page.small_jobs.extend(scan.matches.found.small_jobs);
        page.items = items;
        Ok(SearchPage {
            page,
            next: Some(next).filter(|next| !next.is_end()),
            searched: scan.searched,
            is_cut,
            names: index.names().to_vec(),
            by_key: index.by_key,
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
        self.add_listed(query, &ids, &mut matches.found).await?;
        matches.found.items.retain(|item| index.finds(item));
        Ok(matches)
    }

    /// Reads workflows in order until a page is full.
    async fn scan(
        &self,
        query: &Query,
        index: &SearchIndex,
        after: Position,
        full_at: Option<WorkflowId>,
    ) -> Result<Scan, EngineError> {
        let limit = query.limit.max(1);
        let mut scan = Scan::default();
        scan.matches.end = after;
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
            let rows = rows.min(MAX_SEARCHED - scan.searched);
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
            self.add_matches(index, batch, &mut scan).await?;
        }
        Ok(scan)
    }

    /// Adds those workflows of a batch that match.
    async fn add_matches(
        &self,
        index: &SearchIndex,
        mut batch: Page,
        scan: &mut Scan,
    ) -> Result<(), EngineError> {
        let mut found = Vec::new();
        let mut failed = Vec::new();
        for item in std::mem::take(&mut batch.items) {
            if index.skips(&item) {
                continue;
            }
            if index.is_in_label(&item.label) {
                found.push(item);
            } else if item.meta.status == Status::Failed {
                failed.push(item);
            }
        }
        scan.errors += failed.len();
        batch.items = failed;
        let mut highlights = self.highlights(&batch).await?;
        for item in batch.items {
            let failure = highlights
                .remove(&item.workflow)
                .and_then(|shown| shown.failure);
            if failure.is_some_and(|failure| index.is_in_failure(&failure)) {
                found.push(item);
            }
        }
        let part = &mut scan.matches.found;
        part.missing.add(batch.missing);
        for item in &found {
            let jobs = batch.small_jobs.remove_entry(&item.workflow);
            part.small_jobs.extend(jobs);
        }
        part.items.extend(found);
        Ok(())
    }
}

impl Matches {
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
        let is_over = self.searched >= MAX_SEARCHED || self.errors >= MAX_ERRORS;
        is_over && self.matches.end != Position::End
    }
}
