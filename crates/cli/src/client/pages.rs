//! Reader of lists that the server sends in pages.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::address::Query;
use super::api_client::ApiClient;
use super::model::{Incomplete, Page};
use crate::output::exit::{CommandResult, Failure};
use crate::output::{ListItem, Screen};

/// Page size limit of the server, in items.
pub(crate) const MAX_PAGE_ITEMS: usize = 1_000;
/// Limit of consecutive pages without items. For each such page, a server scans some thousand
/// workflows.
const MAX_EMPTY_PAGES: usize = 1_000;

/// Items of the pages that were read.
#[derive(Debug)]
pub(crate) struct Pages {
    items: Vec<Box<RawValue>>,
    limit: usize,
    has_more: bool,
    incomplete: Option<Incomplete>,
}

/// Reads pages until there are `limit` items, or no more pages. Items that are added meanwhile do
/// not shift the rest.
pub(crate) async fn read_pages(
    path: &str,
    query: &Query,
    limit: usize,
    remote: &ApiClient,
) -> CommandResult<Pages> {
    read_pages_of_size(MAX_PAGE_ITEMS, path, query, limit, remote).await
}

/// Reads pages like [`read_pages`], of at most `page_size` items each.
pub(crate) async fn read_pages_of_size(
    page_size: usize,
    path: &str,
    query: &Query,
    limit: usize,
    remote: &ApiClient,
) -> CommandResult<Pages> {
    let mut items = Vec::new();
    let mut cursor = None::<String>;
    let mut empty_pages = EmptyPageCounter::default();
    let mut incomplete = None;
    while items.len() < limit {
        let size = (limit - items.len()).min(page_size);
        let page = query
            .clone()
            .with("limit", Some(size))
            .with("cursor", cursor.as_ref());
        let page: Page = remote.get_json(page.append_to(path)).await?;
        let found = page.items.len();
        items.extend(page.items);
        incomplete = page.incomplete.or(incomplete);
        let previous = std::mem::replace(&mut cursor, page.next_cursor);
        if cursor.is_none() || (found == 0 && cursor == previous) {
            break;
        }
        empty_pages.count_page(found)?;
    }
    Ok(Pages {
        items,
        limit,
        has_more: cursor.is_some(),
        incomplete,
    })
}

impl Pages {
    /// The items as JSON text.
    pub(crate) fn items(&self) -> &[Box<RawValue>] {
        &self.items
    }

    /// Prints the items. If there are more, it prints the option that raises the limit.
    pub(crate) fn show<T: ListItem + DeserializeOwned>(
        &self,
        option: &str,
        remote: &ApiClient,
        screen: &Screen,
    ) -> CommandResult {
        let higher = self.limit.saturating_mul(10);
        let more = format!("there are more: --{option} {higher}");
        let more = self.has_more.then_some(&*more);
        screen.list(&self.items, more, |item| remote.parse::<T>(item))?;
        Incomplete::exit(self.incomplete.as_ref())
    }
}

/// Counter of consecutive pages without items. Some are usual: for a name together with a tag, the
/// server scans all workflows with the tag.
#[derive(Debug, Default)]
pub(crate) struct EmptyPageCounter {
    empty: usize,
}

impl EmptyPageCounter {
    /// Counts a page that is not the last.
    ///
    /// # Errors
    /// Returned after `MAX_EMPTY_PAGES` consecutive pages without items, since the list may have no
    /// end. Stopping without an error would hide the items after them.
    pub(crate) fn count_page(&mut self, found: usize) -> CommandResult<()> {
        self.empty = if found == 0 { self.empty + 1 } else { 0 };
        if self.empty < MAX_EMPTY_PAGES {
            return Ok(());
        }
        Err(Failure::unavailable(format!(
            "the server gave {MAX_EMPTY_PAGES} pages without items one after the other, and still no end"
        )))
    }
}
