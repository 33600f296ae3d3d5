//! Queues: what waits in them, and whether they hand it out.

use tidegate_workflow::Paused;

use crate::edge::ask::{Answer, Ask};
use crate::edge::body;
use crate::edge::json::Json;
use crate::edge::problem::{Code, Problem};
use crate::edge::query::Query;
use crate::workflows::NoBody;

pub(crate) async fn list(ask: &Ask<'_>) -> Answer {
    Query::new(ask.query)?.end()?;
    let queues = ask.api.engine.queue_states().await?;
    let json = Json::of(|json| {
        json.key("items").array(&queues, |json, queue| {
            json.object(|json| {
                json.key("name").string(&queue.name);
                json.key("paused").boolean(queue.paused == Paused::Yes);
                json.key("ready").number(queue.ready);
                json.key("oldest_ready_at").maybe(queue.oldest, Json::time);
                json.key("waiting_workers").number(queue.waiting_workers as u64);
            });
        });
    });
    Ok(json.ok())
}

pub(crate) async fn set(ask: &Ask<'_>, paused: Paused) -> Answer {
    body::read_optional::<NoBody>(ask.body)?;
    let name = ask.matched.name(0)?;
    let engine = &ask.api.engine;
    if !engine.has_queue(&name).await? {
        return Err(Problem::new(Code::QueueNotFound, format!("no job has named the queue '{name}' so far")));
    }
    engine.set_queue_paused(&name, paused).await?;
    let json = Json::of(|json| {
        json.key("name").string(&name);
        json.key("paused").boolean(paused == Paused::Yes);
    });
    Ok(json.ok())
}
