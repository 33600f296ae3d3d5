//! Queues: what waits in them, and whether they hand it out.

use serde::Serialize;
use tidegate_workflow::{Paused, QueueState};
#[cfg(test)]
use utoipa::ToSchema;

use crate::edge::ask::{Answer, Ask};
use crate::edge::body::{self, NoBody};
use crate::edge::incomplete::Incomplete;
use crate::edge::json;
use crate::edge::problem::{Code, Problem};
use crate::edge::time::Rfc3339;

/// All queues that a job ever named.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct QueueList<'a> {
    items: Vec<Queue<'a>>,
    /// What is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
}

/// A queue.
#[derive(Debug, Serialize)]
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
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct QueuePaused<'a> {
    name: &'a str,
    paused: bool,
}

impl<'a> Queue<'a> {
    fn of(queue: &'a QueueState) -> Self {
        Self {
            name: &queue.name,
            paused: queue.paused == Paused::Yes,
            ready: queue.ready,
            oldest_ready_at: queue.oldest.map(Rfc3339),
            waiting_workers: queue.waiting_workers,
        }
    }
}

pub(crate) async fn list(ask: &Ask<'_>) -> Answer {
    let queues = ask.api.engine().queue_states().await?;
    let (items, incomplete) = (queues.found.iter().map(Queue::of).collect(), Incomplete::of(&queues.missing));
    Ok(json::ok(&QueueList { items, incomplete }))
}

pub(crate) async fn set(ask: &Ask<'_>, paused: Paused) -> Answer {
    body::read_optional::<NoBody>(ask.body)?;
    let name = ask.matched.name(0)?;
    let engine = ask.api.engine();
    if !engine.has_queue(&name).await? {
        return Err(Problem::new(Code::QueueNotFound, format!("no job has named the queue '{name}' so far")));
    }
    engine.set_queue_paused(&name, paused).await?;
    Ok(json::ok(&QueuePaused { name: &name, paused: paused == Paused::Yes }))
}
