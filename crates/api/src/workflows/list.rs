//! Pages of workflows, and their counts.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_workflow::{Cursor, Filter, MAX_NAME, Order, Partial, Query as ListQuery, Status};
#[cfg(test)]
use utoipa::ToSchema;

use super::view::Workflow;
use crate::http::incomplete::Incomplete;
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::request::{Answer, RequestContext};
use crate::http::time::Rfc3339;

/// Most items of a page.
pub(crate) const MOST_ITEMS: usize = 1_000;

/// A page of workflows.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct WorkflowPage<'a> {
    items: Vec<Workflow<'a>>,
    /// The cursor of the next page; null when this is the last.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
}

/// How many workflows there are.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = WorkflowCount))]
pub(crate) struct Count {
    total: u64,
    by_status: Numbers,
    /// The server's time before it counted. As `created_before` of a filter, it leaves out what is created later.
    as_of: Rfc3339,
    /// Numbers by name and status, with `by=name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_name: Option<BTreeMap<String, Numbers>>,
    /// With `by=name`, the cursor of the next names. Left out when these are the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
}

/// Numbers of workflows by status.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = StatusNumbers))]
struct Numbers(BTreeMap<&'static str, u64>);

/// Reads the filter of a query.
fn filter(query: &mut Query) -> Result<Filter, Problem> {
    Ok(Filter {
        statuses: query.statuses()?,
        name: query.take("name"),
        tag: query.take("tag"),
        created_from: query.moment("created_after")?,
        created_to: query.moment("created_before")?,
        id_prefix: query.id_prefix()?,
    })
}

/// Parses the `next_cursor` of the page before.
pub(crate) fn cursor(text: Option<String>) -> Result<Option<Cursor>, Problem> {
    let wrong = |_| {
        Problem::new(
            Code::InvalidCursor,
            "the cursor must be the next_cursor of a page of workflows",
        )
    };
    text.map(|text| text.parse().map_err(wrong)).transpose()
}

pub(crate) async fn list(ask: &RequestContext<'_>) -> Answer {
    let mut query = Query::new(ask.query)?;
    let filter = filter(&mut query)?;
    let order = match query.take("order").as_deref() {
        None | Some("newest") => Order::NewestFirst,
        Some("oldest") => Order::OldestFirst,
        Some(_) => return Err(Problem::field("order", "expected newest or oldest")),
    };
    let limit = query.limit(100, MOST_ITEMS)?;
    let after = cursor(query.take("cursor"))?;
    query.end()?;
    let page = ask
        .api
        .engine()
        .list(&ListQuery {
            filter,
            order,
            limit,
            after,
        })
        .await?;
    let items = page
        .items
        .iter()
        .map(|item| Workflow::summary(item.workflow, &item.label, &item.meta));
    let next_cursor = page.next.map(|next| next.to_string());
    Ok(json::ok(&WorkflowPage {
        items: items.collect(),
        next_cursor,
        incomplete: Incomplete::of(&page.missing),
    }))
}

pub(crate) async fn count(ask: &RequestContext<'_>) -> Answer {
    let mut query = Query::new(ask.query)?;
    let filter = filter(&mut query)?;
    let by = query.take("by");
    let names = match by.as_deref() {
        None => None,
        Some("name") => Some((
            query.limit(100, MOST_ITEMS)?,
            name_cursor(query.take("cursor"))?,
        )),
        Some(_) => return Err(Problem::field("by", "expected name")),
    };
    query.end()?;
    // The time is read before counting. Otherwise a workflow created meanwhile would seem to be
    // older.
    let engine = ask.api.engine();
    let as_of = Rfc3339(ask.api.now());
    let Partial { found, mut missing } = engine.count(&filter).await?;
    let by_status = numbers(found);
    let mut by_name = None;
    let mut next_cursor = None;
    if let Some((limit, after)) = names {
        let Partial {
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
    let incomplete = Incomplete::of(&missing);
    Ok(json::ok(&Count {
        total,
        by_status,
        as_of,
        by_name,
        next_cursor,
        incomplete,
    }))
}

/// Validates the last name of the page before.
fn name_cursor(text: Option<String>) -> Result<Option<String>, Problem> {
    let is_name = |text: &String| text.len() <= MAX_NAME && !text.chars().any(char::is_control);
    if text.as_ref().is_some_and(|text| !is_name(text)) {
        return Err(Problem::new(
            Code::InvalidCursor,
            "the cursor must be the next_cursor of a count by name",
        ));
    }
    Ok(text)
}

fn numbers(counts: Vec<(Status, u64)>) -> Numbers {
    Numbers(
        counts
            .into_iter()
            .map(|(status, number)| (status.word(), number))
            .collect(),
    )
}
