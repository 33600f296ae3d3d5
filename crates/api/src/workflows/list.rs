//! Pages of workflows, and their counts.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use serde::Serialize;
use tidegate_workflow::{
    Cursor, FailureFilter, Filter, Order, PartialResult, Query as ListQuery, Status,
};
#[cfg(test)]
use utoipa::ToSchema;

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
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
    /// With `error` or `handler`: how many failed workflows are too large to read here, and may match. Left out when none is.
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
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
    /// With `error` or `handler`: how many failed workflows are too large to read here, and may match. Left out when none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<usize>,
}

/// Numbers of workflows by status.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = StatusNumbers))]
struct StatusCounts(BTreeMap<&'static str, u64>);

/// Reads the filter of a query.
fn parse_filter(query: &mut Query) -> Result<Filter, Problem> {
    Ok(Filter {
        statuses: query.statuses()?,
        name: query.remove("name"),
        tag: query.remove("tag"),
        created_from: query.time("created_after")?,
        created_to: query.time("created_before")?,
        id_prefix: query.id_prefix()?,
    })
}

/// The filter by failed jobs, which only failed workflows are read for.
pub(crate) fn failure_filter(
    kind: Option<String>,
    handler: Option<String>,
    statuses: &[Status],
) -> Result<Option<FailureFilter>, Problem> {
    if kind.is_none() && handler.is_none() {
        return Ok(None);
    }
    if statuses != [Status::Failed] {
        return Err(Problem::field(
            "status",
            "expected only the status failed: error and handler are of failed jobs",
        ));
    }
    Ok(Some(FailureFilter { kind, handler }))
}

fn parse_failure(query: &mut Query, filter: &Filter) -> Result<Option<FailureFilter>, Problem> {
    let (kind, handler) = (query.remove("error"), query.remove("handler"));
    failure_filter(kind, handler, &filter.statuses)
}

fn parse_order(query: &mut Query) -> Result<Order, Problem> {
    match query.remove("order").as_deref() {
        None | Some("newest") => Ok(Order::NewestFirst),
        Some("oldest") => Ok(Order::OldestFirst),
        Some(_) => Err(Problem::field("order", "expected newest or oldest")),
    }
}

/// Parses the `next_cursor` of the page before.
pub(crate) fn parse_cursor(text: Option<String>) -> Result<Option<Cursor>, Problem> {
    let wrong = |_| Problem::invalid_cursor("a page of workflows");
    text.map(|text| text.parse().map_err(wrong)).transpose()
}

pub(crate) async fn list(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let filter = parse_filter(&mut query)?;
    let failure = parse_failure(&mut query, &filter)?;
    let order = parse_order(&mut query)?;
    let limit = query.limit(100, MAX_PAGE_ITEMS)?;
    let after = parse_cursor(query.remove("cursor"))?;
    query.finish()?;
    let page = request
        .engine()
        .list(&ListQuery {
            filter,
            failure,
            order,
            limit,
            after,
        })
        .await?;
    // Errors and names of jobs are extras: without them, the list is still of use.
    let highlights = if limit <= MAX_HIGHLIGHTED_ITEMS {
        let read = request.engine().highlights(&page);
        read.await.unwrap_or_default()
    } else {
        HashMap::default()
    };
    let items = page.items.iter().map(|item| {
        let workflow = Workflow::summary(item.workflow, &item.label, &item.meta);
        match highlights.get(&item.workflow) {
            Some(highlights) => workflow.with_highlights(highlights),
            None => workflow,
        }
    });
    let next_cursor = page.next.map(|next| next.to_string());
    Ok(json::ok(&WorkflowPage {
        items: items.collect(),
        next_cursor,
        incomplete: Incomplete::from_missing(&page.missing),
        unread: Some(page.unread).filter(|unread| *unread > 0),
    }))
}

/// Counts the failed workflows of a filter by failed jobs, of as many as one call reads.
async fn count_failed(
    request: &RequestContext<'_>,
    mut query: Query,
    filter: Filter,
    failure: FailureFilter,
) -> HandlerResult {
    let after = parse_cursor(query.remove("cursor"))?;
    query.finish()?;
    let as_of = Rfc3339(request.now());
    let query = ListQuery {
        filter,
        failure: Some(failure),
        order: Order::OldestFirst,
        limit: MAX_PAGE_ITEMS,
        after,
    };
    let page = request.engine().list(&query).await?;
    let total = page.items.len() as u64;
    Ok(json::ok(&CountAnswer {
        total,
        by_status: numbers(vec![(Status::Failed, total)]),
        as_of,
        by_name: None,
        next_cursor: page.next.map(|next| next.to_string()),
        incomplete: Incomplete::from_missing(&page.missing),
        unread: Some(page.unread).filter(|unread| *unread > 0),
    }))
}

pub(crate) async fn count(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let filter = parse_filter(&mut query)?;
    if let Some(failure) = parse_failure(&mut query, &filter)? {
        return count_failed(request, query, filter, failure).await;
    }
    let by = query.remove("by");
    let names = match by.as_deref() {
        None => None,
        Some("name") => Some((
            query.limit(100, MAX_PAGE_ITEMS)?,
            query.name_cursor("a count by name")?,
        )),
        Some(_) => return Err(Problem::field("by", "expected name")),
    };
    query.finish()?;
    // The time is read before counting. Otherwise a workflow created meanwhile would seem to be
    // older.
    let engine = request.engine();
    let as_of = Rfc3339(request.now());
    let PartialResult { found, mut missing } = engine.count(&filter).await?;
    let by_status = numbers(found);
    let mut by_name = None;
    let mut next_cursor = None;
    if let Some((limit, after)) = names {
        let PartialResult {
            found,
            missing: others,
        } = engine
            .count_by_name(&filter, after.as_deref(), limit)
            .await?;
        missing.0.extend(others.0);
        by_name = Some(
            found
                .names
                .into_iter()
                .map(|(name, counts)| (name, numbers(counts)))
                .collect(),
        );
        next_cursor = found.next;
    }
    let total = by_status.0.values().sum();
    let incomplete = Incomplete::from_missing(&missing);
    Ok(json::ok(&CountAnswer {
        total,
        by_status,
        as_of,
        by_name,
        next_cursor,
        incomplete,
        unread: None,
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
