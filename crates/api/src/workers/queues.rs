//! Queues: their ready jobs, and whether they are paused.

use serde::Serialize;
use tidegate_workflow::{PartialResult, Paused};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body::check_name;
use crate::http::body::{self, NoBody};
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::views::incomplete::Incomplete;

/// Most queues of a page.
const MAX_PAGE_ITEMS: usize = 1_000;

/// A page of queues, by name.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct QueuePage<'a> {
    items: Vec<Queue<'a>>,
    /// The cursor of the next page; null when this is the last.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<&'a str>,
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
}

/// A queue.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct Queue<'a> {
    name: &'a str,
    /// Whether it hands out no jobs.
    paused: bool,
    /// Jobs that wait for a worker.
    ready: u64,
    /// Since when the oldest of them has waited; null when there are none.
    #[cfg_attr(test, schema(required))]
    oldest_ready_at: Option<Rfc3339>,
    /// Workers that wait for its jobs at this server.
    waiting_workers: usize,
}

/// A queue that was paused or resumed.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct QueuePaused<'a> {
    name: &'a str,
    paused: bool,
}

pub(crate) async fn list(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let limit = query.limit(100, MAX_PAGE_ITEMS)?;
    // A cursor is the name of the last queue. It stays valid when queues come and go, even that
    // one.
    let after = query.name_cursor("a page of queues")?;
    query.finish()?;
    let PartialResult { found, missing } =
        request.engine().queue_page(after.as_deref(), limit).await?;
    let next_cursor = found
        .queues
        .last()
        .filter(|_| found.more)
        .map(|last| last.name.as_str());
    let items = found.queues.iter().map(|queue| Queue {
        name: &queue.name,
        paused: queue.paused == Paused::Yes,
        ready: queue.ready,
        oldest_ready_at: queue.oldest.map(Rfc3339),
        waiting_workers: queue.waiting_workers,
    });
    Ok(json::ok(&QueuePage {
        items: items.collect(),
        next_cursor,
        incomplete: Incomplete::from_missing(&missing),
    }))
}

pub(crate) async fn set(request: &RequestContext<'_>, paused: Paused) -> HandlerResult {
    body::read_optional::<NoBody>(request.body)?;
    let name = request.matched.name(0)?;
    check_name(&name, || "queue".to_owned())?;
    let engine = request.engine();
    // A queue may be paused before its first job comes.
    if paused == Paused::No && !engine.has_queue(&name).await? {
        return Err(Problem::new(
            Code::QueueNotFound,
            format!("there is no queue '{name}': no job has named it, or not for long"),
        ));
    }
    engine.set_queue_paused(&name, paused).await?;
    Ok(json::ok(&QueuePaused {
        name: &name,
        paused: paused == Paused::Yes,
    }))
}
