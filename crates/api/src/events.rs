//! A workflow as a stream of server-sent events.

mod view;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use tidegate_workflow::{Engine, EngineError, Notice, WorkflowId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
#[cfg(test)]
use utoipa::ToSchema;

use crate::activity::OpenStream;
use crate::edge::ask::{Answer, Ask, LOOK};
use crate::edge::json::{self, Id};
use crate::edge::room::{self, Caller, Room, Share};
use crate::edge::words::StateWord;
use crate::workflows::view::Workflow;
pub(crate) use view::Views;
use view::{Look, Told, View};

/// What happens within this time is told at once: four times a second is as much as anybody sees.
const GATHER: Duration = Duration::from_millis(250);
/// Proxies close connections that say nothing for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Frames that wait for a reader who is slow; then nothing is read of the store either.
const FRAMES: usize = 1;

/// A job of the workflow is doing something else.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct JobEvent<'a> {
    name: &'a str,
    state: StateWord,
    index: usize,
}

/// The workflow was removed: this is the last event.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct RemovedEvent {
    id: Id,
}

pub(crate) async fn events(ask: &Ask<'_>) -> Answer {
    let id = ask.workflow()?;
    let reader = Reader { caller: ask.caller(), room: ask.api.rooms.answers.clone() };
    let share = ask.api.rooms.streams.take(&reader.caller, 1)?;
    let last = ask.headers.get("last-event-id").map(|last| last.to_str().unwrap_or_default().to_owned());
    let engine = ask.api.engine().clone();
    // Before the first look, so that nothing falls between.
    let notices = engine.notices();
    let view = ask.api.views.of(id);
    let version = engine.glance(id).await?.version;
    let look = view.look(&engine, id, version).await?;
    let (frames, receiver) = mpsc::channel(FRAMES);
    let pause = if ask.api.has_company() { LOOK } else { KEEP_ALIVE };
    let missed = last.is_some_and(|last| last != look.told.version.to_string());
    let mut text = Vec::new();
    push_changes(&mut text, if missed { &[] } else { &look.told.places }, &look);
    let drain = ask.api.host.drain.clone();
    let places = (share, ask.api.activity.open_stream());
    let watch = Watch { engine, id, view, notices, reader, _places: places, frames, look: pause, drain };
    ask.api.host.tasks.spawn(watch.run(Arc::clone(&look.told), text));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// Who reads, and where their large frames take room.
struct Reader {
    caller: Caller,
    room: Arc<Room>,
}

/// Follows one workflow for one reader; ends with the reader, the workflow, or the server.
struct Watch {
    engine: Engine,
    id: WorkflowId,
    view: Arc<View>,
    notices: broadcast::Receiver<(WorkflowId, Arc<Notice>)>,
    reader: Reader,
    /// One of the streams that may be open.
    _places: (Share, OpenStream),
    frames: mpsc::Sender<Result<Bytes, Infallible>>,
    look: Duration,
    drain: CancellationToken,
}

impl Watch {
    async fn run(mut self, mut told: Arc<Told>, mut text: Vec<u8>) {
        let mut silent = Duration::ZERO;
        loop {
            if !text.is_empty() && !self.send(std::mem::take(&mut text)).await {
                return;
            }
            tokio::select! {
                heard = timeout(self.look, heard(&mut self.notices, self.id)) => {
                    if heard.is_ok() {
                        // More is likely to follow at once.
                        tokio::select! {
                            () = sleep(GATHER) => {}
                            () = self.frames.closed() => return,
                            () = self.drain.cancelled() => return,
                        }
                    }
                }
                () = self.frames.closed() => return,
                () = self.drain.cancelled() => return,
            }
            match self.changed(told.version).await {
                Ok(None) => {}
                Ok(Some(now)) => {
                    push_changes(&mut text, &told.places, &now);
                    told = Arc::clone(&now.told);
                }
                Err(EngineError::NoWorkflow { .. }) => {
                    push_event(&mut text, "removed", &RemovedEvent { id: Id(self.id) });
                    // The reader may have gone, too.
                    let _ = self.send(text).await;
                    return;
                }
                // The next look may find more.
                Err(_) => {}
            }
            silent = if text.is_empty() { silent + self.look } else { Duration::ZERO };
            if silent >= KEEP_ALIVE {
                silent = Duration::ZERO;
                text.extend_from_slice(b": still here\n\n");
            }
        }
    }

    /// Sends a frame to the reader. False: the stream has ended, since the reader has gone or there is no room for what it does not
    /// read.
    async fn send(&self, text: Vec<u8>) -> bool {
        tokio::select! {
            kept = room::keep(&self.reader.room, &self.reader.caller, text) => match kept {
                Ok(text) => self.frames.send(Ok(text)).await.is_ok(),
                Err(_) => false,
            },
            () = self.drain.cancelled() => false,
        }
    }

    /// The workflow, if it is no longer what it was.
    async fn changed(&self, version: u64) -> Result<Option<Arc<Look>>, EngineError> {
        let now = self.engine.glance(self.id).await?.version;
        if now == version {
            return Ok(None);
        }
        self.view.look(&self.engine, self.id, now).await.map(Some)
    }
}

/// Returns when something may have happened to the workflow.
async fn heard(notices: &mut broadcast::Receiver<(WorkflowId, Arc<Notice>)>, id: WorkflowId) {
    loop {
        match notices.recv().await {
            Ok((about, _)) if about == id => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

/// The jobs that are doing something else than the reader knows, and then the workflow: whoever has its version knows all.
fn push_changes(text: &mut Vec<u8>, told: &[u8], now: &Look) {
    let snapshot = &now.snapshot;
    for (at, place) in now.told.places.iter().enumerate() {
        if told.get(at) != Some(place) {
            let (about, state) = (&snapshot.graph().jobs[at], snapshot.jobs()[at].state);
            push_event(text, "job", &JobEvent { name: &about.name, state: state.into(), index: at });
        }
    }
    text.extend_from_slice(format!("id: {}\n", now.told.version).as_bytes());
    push_event(text, "workflow", &Workflow::of(snapshot));
}

fn push_event(text: &mut Vec<u8>, event: &str, data: &impl Serialize) {
    text.extend_from_slice(format!("event: {event}\ndata: ").as_bytes());
    text.extend_from_slice(&json::text(data));
    text.extend_from_slice(b"\n\n");
}
