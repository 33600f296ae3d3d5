//! Selection of workflows by a filter and a text, for lists, counts and bulk actions.

use std::time::Duration;

use tidegate_workflow::{
    Cursor, Engine, FailureFilter, Filter, Order, Page, Query as ListQuery, SearchCursor, Status,
    Timestamp, WorkflowId,
};

use crate::http::duration_text::{self, MAX_DURATION};
use crate::http::problem::Problem;
use crate::http::query::Query;

/// Most characters of a text that is searched for: the longest name.
const MAX_TEXT_CHARS: usize = 200;
/// Most ids of a filter.
pub(crate) const MAX_IDS: usize = 1_000;

/// Filter, and what the workflows are to have that no index has: a text, or a failed job.
pub(crate) struct Selection {
    pub(crate) filter: Filter,
    pub(crate) text: Option<String>,
    pub(crate) failure: Option<FailureFilter>,
}

/// Position of a page: in a list, or in a search.
pub(crate) enum PagePosition {
    List(Option<Cursor>),
    Search(String, Option<SearchCursor>),
}

/// A page of a list or of a search.
pub(crate) struct FoundPage {
    pub(crate) page: Page,
    pub(crate) next_cursor: Option<String>,
    /// How many workflows a search has read, and whether it could not read more.
    pub(crate) searched: Option<usize>,
    pub(crate) older: Option<bool>,
}

impl FoundPage {
    /// How many failed workflows were too large to read for `error` or `handler`.
    pub(crate) fn unread(&self) -> Option<usize> {
        Some(self.page.unread).filter(|unread| *unread > 0)
    }
}

impl Selection {
    /// Takes the filter of a query.
    pub(crate) fn from_query(query: &mut Query, now: Timestamp) -> Result<Self, Problem> {
        let range = query.duration("range", MAX_DURATION)?;
        let ids = query.remove("ids");
        let ids = ids.map(|text| ids_from(text.split(','), "ids"));
        let filter = Filter {
            statuses: query.statuses()?,
            name: query.remove("name"),
            tag: query.remove("tag"),
            created_from: latest(query.time("created_after")?, range, now),
            created_to: query.time("created_before")?,
            id_prefix: query.id_prefix()?,
            ids: ids.transpose()?,
        };
        let text = text_from(query.remove("q"), "q")?;
        let (kind, handler) = (query.remove("error"), query.remove("handler"));
        Self::new(filter, text, kind, handler)
    }

    /// Checks that the parts go together.
    pub(crate) fn new(
        filter: Filter,
        text: Option<String>,
        kind: Option<String>,
        handler: Option<String>,
    ) -> Result<Self, Problem> {
        let has_failure = kind.is_some() || handler.is_some();
        if has_failure && filter.statuses != [Status::Failed] {
            let expected = "expected only the status failed: error and handler are of failed jobs";
            return Err(Problem::field("status", expected));
        }
        if has_failure && text.is_some() {
            return Err(Problem::field("q", "not together with error or handler"));
        }
        let failure = has_failure.then_some(FailureFilter { kind, handler });
        Ok(Self {
            filter,
            text,
            failure,
        })
    }

    /// When errors of failed jobs are read, if they decide what is selected: a job that fails again
    /// later may have another error.
    pub(crate) fn read_at(&self, now: Timestamp) -> Option<Timestamp> {
        (self.text.is_some() || self.failure.is_some()).then_some(now)
    }

    /// Reads the page that begins at a position.
    pub(crate) async fn read(
        self,
        engine: &Engine,
        from: PagePosition,
        order: Order,
        limit: usize,
    ) -> Result<FoundPage, Problem> {
        let mut query = ListQuery {
            filter: self.filter,
            failure: self.failure,
            order,
            limit,
            after: None,
        };
        match from {
            PagePosition::List(after) => {
                query.after = after;
                let page = engine.list(&query).await?;
                Ok(FoundPage {
                    next_cursor: page.next.map(|next| next.to_string()),
                    page,
                    searched: None,
                    older: None,
                })
            }
            PagePosition::Search(text, after) => {
                let found = engine.search(&query, &text, after).await?;
                Ok(FoundPage {
                    next_cursor: found.next.map(|next| next.to_string()),
                    page: found.page,
                    searched: Some(found.searched),
                    older: Some(found.is_cut),
                })
            }
        }
    }

    /// Parses the `next_cursor` of the page before.
    pub(crate) fn position(&self, cursor: Option<String>) -> Result<PagePosition, Problem> {
        let Some(text) = &self.text else {
            let wrong = |_| Problem::invalid_cursor("a page of workflows");
            let cursor = cursor.map(|cursor| cursor.parse().map_err(wrong));
            return Ok(PagePosition::List(cursor.transpose()?));
        };
        let wrong = |_| Problem::invalid_cursor("a page of workflows with the same q");
        let cursor = cursor.map(|cursor| cursor.parse().map_err(wrong));
        Ok(PagePosition::Search(text.clone(), cursor.transpose()?))
    }
}

/// Returns the later one of a time and the start of a range up to now.
pub(crate) fn latest(
    time: Option<Timestamp>,
    range: Option<Duration>,
    now: Timestamp,
) -> Option<Timestamp> {
    time.max(range.map(|range| now.before(range)))
}

/// Reads the range of a body.
pub(crate) fn range_from(text: Option<String>, path: &str) -> Result<Option<Duration>, Problem> {
    let wrong = || Problem::field(path, "expected a time span with a unit, such as 15m or 24h");
    let read = |text: String| duration_text::parse(&text).ok_or_else(wrong);
    text.map(read).transpose()
}

/// Checks a text that is searched for. An empty one counts as not given.
pub(crate) fn text_from(text: Option<String>, path: &str) -> Result<Option<String>, Problem> {
    let Some(text) = text.map(|text| text.trim().to_owned()) else {
        return Ok(None);
    };
    if text.chars().count() > MAX_TEXT_CHARS || text.chars().any(char::is_control) {
        let expected = format!("expected at most {MAX_TEXT_CHARS} characters, none of control");
        return Err(Problem::field(path, expected));
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Reads the ids of a filter.
pub(crate) fn ids_from<'a>(
    texts: impl Iterator<Item = &'a str>,
    path: &str,
) -> Result<Vec<WorkflowId>, Problem> {
    let mut ids = Vec::new();
    for (at, text) in texts.enumerate() {
        if at == MAX_IDS {
            let expected = format!("expected at most {MAX_IDS} ids");
            return Err(Problem::field(path, expected));
        }
        let wrong = |error| Problem::field(format!("{path}[{at}]"), format!("{error}"));
        ids.push(text.trim().parse().map_err(wrong)?);
    }
    Ok(ids)
}
