//! Pages of workflows, and their counts.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use serde::Serialize;
use tidegate_workflow::{
    CountPage, Filter, Highlights, ListedWorkflow, MissingPartitions, Order, Status,
};
#[cfg(test)]
use utoipa::ToSchema;

use super::selection::Selection;
use crate::http::json;
use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::views::incomplete::Incomplete;
use crate::views::workflow::Workflow;

/// Most items of a page.
pub(crate) const MAX_PAGE_ITEMS: usize = 1_000;

/// Most items of a page that shows what failed and what runs: more would be slow to read.
const MAX_HIGHLIGHTED_ITEMS: usize = 100;

/// A page of workflows.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct WorkflowPage<'a> {
    items: Vec<Workflow<'a>>,
    /// The cursor of the next page; null when this is the last.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
    /// With `q`: how many workflows were read for the text, at most 10,000. Those found by name, tag, id or key take no reading. Left out without `q`.
    #[serde(skip_serializing_if = "Option::is_none")]
    searched: Option<usize>,
    /// With `q`: whether the search ended there, and `next_cursor` leads to workflows that were not read. Left out without `q`.
    #[serde(skip_serializing_if = "Option::is_none")]
    older: Option<bool>,
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
    /// With `error`, `handler` or `q`: how many failed workflows are too large to read here, and may match. Left out when none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<usize>,
}

/// How many workflows there are.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = WorkflowCount))]
pub(crate) struct CountAnswer {
    total: u64,
    by_status: StatusCounts,
    /// The server's time before it counted. As `created_before` of a filter, it leaves out what is created later.
    as_of: Rfc3339,
    /// Numbers by name and status, with `by=name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_name: Option<BTreeMap<String, StatusCounts>>,
    /// With `by=name`, the cursor of the next names; with `error` or `handler`, of the next workflows. Left out when there are no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// With `q`: how many workflows were read for the text, at most 10,000. Left out without `q`.
    #[serde(skip_serializing_if = "Option::is_none")]
    searched: Option<usize>,
    /// With `q`: whether there are more workflows, which were not read; the numbers are then lower bounds. Left out without `q`.
    #[serde(skip_serializing_if = "Option::is_none")]
    older: Option<bool>,
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
    /// With `error`, `handler` or `q`: how many failed workflows are too large to read here, and may match. Left out when none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<usize>,
}

/// Numbers of workflows by status.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = StatusNumbers))]
struct StatusCounts(BTreeMap<&'static str, u64>);

impl CountAnswer {
    fn new(counts: Vec<(Status, u64)>, as_of: Rfc3339, missing: &MissingPartitions) -> Self {
        let by_status = numbers(counts);
        Self {
            total: by_status.0.values().sum(),
            by_status,
            as_of,
            by_name: None,
            next_cursor: None,
            searched: None,
            older: None,
            incomplete: Incomplete::from_missing(missing),
            unread: None,
        }
    }

    fn add_names(&mut self, counts: CountPage) {
        let names = counts.names.into_iter();
        let names = names.map(|(name, counts)| (name, numbers(counts)));
        self.by_name = Some(names.collect());
        self.next_cursor = counts.next;
    }
}

fn parse_order(query: &mut Query) -> Result<Order, Problem> {
    match query.remove("order").as_deref() {
        None | Some("newest") => Ok(Order::NewestFirst),
        Some("oldest") => Ok(Order::OldestFirst),
        Some(_) => Err(Problem::field("order", "expected newest or oldest")),
    }
}

pub(crate) async fn list(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let selection = Selection::from_query(&mut query, request.now())?;
    let order = parse_order(&mut query)?;
    let limit = query.limit(100, MAX_PAGE_ITEMS)?;
    let from = selection.position(query.remove("cursor"))?;
    query.finish()?;
    let engine = request.engine();
    let found = selection.read(engine, from, order, limit).await?;
    let page = &found.page;
    // Errors and names of jobs are extras: without them, the list is still of use.
    let highlights = if limit <= MAX_HIGHLIGHTED_ITEMS {
        let read = engine.highlights(page);
        read.await.unwrap_or_default()
    } else {
        HashMap::default()
    };
    let items = page.items.iter();
    let items = items.map(|item| summary(item, highlights.get(&item.workflow)));
    Ok(json::ok(&WorkflowPage {
        items: items.collect(),
        unread: found.unread(),
        incomplete: Incomplete::from_missing(&page.missing),
        next_cursor: found.next_cursor.clone(),
        searched: found.searched,
        older: found.older,
    }))
}

fn summary<'a>(item: &'a ListedWorkflow, highlights: Option<&'a Highlights>) -> Workflow<'a> {
    let workflow = Workflow::summary(item.workflow, &item.label, &item.meta);
    match highlights {
        Some(highlights) => workflow.with_highlights(highlights),
        None => workflow,
    }
}

/// Counts the failed workflows with such a failed job, of as many as one call reads.
async fn count_failed(
    request: &RequestContext<'_>,
    selection: Selection,
    cursor: Option<String>,
) -> HandlerResult {
    let from = selection.position(cursor)?;
    let (as_of, order) = (Rfc3339(request.now()), Order::OldestFirst);
    let read = selection.read(request.engine(), from, order, MAX_PAGE_ITEMS);
    let found = read.await?;
    let counts = vec![(Status::Failed, found.page.items.len() as u64)];
    Ok(json::ok(&CountAnswer {
        unread: found.unread(),
        next_cursor: found.next_cursor,
        ..CountAnswer::new(counts, as_of, &found.page.missing)
    }))
}

pub(crate) async fn count(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let selection = Selection::from_query(&mut query, request.now())?;
    if selection.failure.is_some() {
        let cursor = query.remove("cursor");
        query.finish()?;
        return count_failed(request, selection, cursor).await;
    }
    if let Some(text) = &selection.text {
        return count_text(request, query, &selection.filter, text).await;
    }
    let filter = selection.filter;
    let names = names_from(&mut query, &filter)?;
    query.finish()?;
    // The time is read before counting. Otherwise a workflow created meanwhile would seem to be
    // older.
    let as_of = Rfc3339(request.now());
    let mut counts = request.engine().count(&filter).await?;
    let by_name = match names {
        Some((limit, after)) => {
            let engine = request.engine();
            let read = engine.count_by_name(&filter, after.as_deref(), limit);
            let by_name = read.await?;
            counts.missing.0.extend(by_name.missing.0);
            Some(by_name.found)
        }
        None => None,
    };
    let mut answer = CountAnswer::new(counts.found, as_of, &counts.missing);
    if let Some(by_name) = by_name {
        answer.add_names(by_name);
    }
    Ok(json::ok(&answer))
}

/// With `by=name`: how many names, and the name after which they begin.
fn names_from(
    query: &mut Query,
    filter: &Filter,
) -> Result<Option<(usize, Option<String>)>, Problem> {
    match query.remove("by").as_deref() {
        None => Ok(None),
        Some("name") if filter.ids.is_some() => Err(Problem::field("by", "not together with ids")),
        Some("name") => Ok(Some((
            query.limit(100, MAX_PAGE_ITEMS)?,
            query.name_cursor("a count by name")?,
        ))),
        Some(_) => Err(Problem::field("by", "expected name")),
    }
}

/// Counts the workflows with a text, of as many as one call reads.
async fn count_text(
    request: &RequestContext<'_>,
    mut query: Query,
    filter: &Filter,
    text: &str,
) -> HandlerResult {
    if query.remove("by").is_some() {
        return Err(Problem::field("by", "not together with q"));
    }
    query.finish()?;
    let as_of = Rfc3339(request.now());
    let found = request.engine().count_found(filter, text).await?;
    Ok(json::ok(&CountAnswer {
        searched: Some(found.searched),
        older: Some(found.is_cut),
        unread: Some(found.unread).filter(|unread| *unread > 0),
        ..CountAnswer::new(found.by_status, as_of, &found.missing)
    }))
}

fn numbers(counts: Vec<(Status, u64)>) -> StatusCounts {
    StatusCounts(
        counts
            .into_iter()
            .map(|(status, number)| (status.word(), number))
            .collect(),
    )
}
