//! A workflow as a stream of server-sent events.

mod view;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use tidegate_workflow::{Engine, EngineError, WorkflowId};
use tokio::sync::{mpsc, watch};
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
pub(crate) use view::{Known, View, Views};
use view::{Look, Told};

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
    let (view, known) = ask.api.follow(id);
    let version = engine.glance(id).await?.version;
    let look = view.look(&engine, id, version).await?;
    let (frames, receiver) = mpsc::channel(FRAMES);
    let missed = last.is_some_and(|last| last != look.told.version.to_string());
    let mut text = Vec::new();
    push_changes(&mut text, if missed { &[] } else { &look.told.places }, &look);
    let drain = ask.api.host.drain.clone();
    let places = (share, ask.api.activity.open_stream());
    let watch = Watch { engine, id, view, known, reader, _places: places, frames, drain };
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
    known: watch::Receiver<Known>,
    reader: Reader,
    /// One of the streams that may be open.
    _places: (Share, OpenStream),
    frames: mpsc::Sender<Result<Bytes, Infallible>>,
    drain: CancellationToken,
}

impl Watch {
    async fn run(mut self, mut told: Arc<Told>, mut text: Vec<u8>) {
        // After a failure the next look may find more.
        let mut pause = KEEP_ALIVE;
        loop {
            if !text.is_empty() && !self.send(std::mem::take(&mut text)).await {
                return;
            }
            let Some(known) = self.wait(pause).await else { return };
            pause = KEEP_ALIVE;
            match self.changed(known, told.version).await {
                Ok(None) => text.extend_from_slice(b": still here\n\n"),
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
                Err(_) => pause = LOOK,
            }
        }
    }

    /// What is known of the workflow when something has happened, and what follows at once, or the time is over. None: the stream ends.
    async fn wait(&mut self, pause: Duration) -> Option<Known> {
        let next = async {
            if let Ok(Ok(())) = timeout(pause, self.known.changed()).await {
                // More is likely to follow at once.
                sleep(GATHER).await;
            }
            *self.known.borrow_and_update()
        };
        tokio::select! {
            known = next => Some(known),
            () = self.frames.closed() => None,
            () = self.drain.cancelled() => None,
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
    async fn changed(&self, known: Known, told: u64) -> Result<Option<Arc<Look>>, EngineError> {
        match known {
            Known::Version { version, .. } if version <= told => Ok(None),
            Known::Version { version, .. } => self.view.look(&self.engine, self.id, version).await.map(Some),
            Known::Removed => Err(EngineError::NoWorkflow { workflow: self.id }),
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
