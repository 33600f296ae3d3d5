//! A workflow as a stream of server-sent events.

mod frames;
mod look;
mod pace;
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
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
#[cfg(test)]
use utoipa::ToSchema;

use crate::activity::OpenStream;
use crate::edge::ask::{Answer, Ask, LOOK, in_time};
use crate::edge::json::Id;
use crate::edge::room::{self, Caller, Room, Share};
use crate::edge::words::StateWord;
use frames::Frames;
use look::Told;
pub(crate) use view::{Known, View, Views};
use view::{News, Since};

/// How many bytes of large frames one reader gets in a second: what happens meanwhile is told at once.
const PACE: usize = 1024 * 1024;
/// Bytes of a text that are handed to the connection at once. Other connections have their turn between.
const PIECE: usize = 64 * 1024;
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
    let view = ask.api.follow(id).0;
    let known = view.readers();
    let version = engine.glance(id).await?.version;
    let missed = last.is_some_and(|last| last != version.to_string());
    let since = if missed { Since::Ever } else { Since::Now };
    let news = in_time(view.news((&engine, id), version, &since)).await?;
    let (frames, receiver) = mpsc::channel(FRAMES);
    let drain = ask.api.host.drain.clone();
    let places = (share, ask.api.activity.open_stream());
    let watch = Watch { engine, id, view, known, reader, _places: places, frames, drain };
    ask.api.host.tasks.spawn(watch.run(news));
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
    async fn run(mut self, News { mut told, frames }: News) {
        let mut frames = Some(frames);
        // After a failure the next look may find more.
        let mut pause = KEEP_ALIVE;
        loop {
            let rest = match frames.take() {
                Some(frames) if !self.send(&frames).await => return,
                Some(frames) => rest(frames.len()),
                None => Duration::ZERO,
            };
            let Some(known) = self.wait(rest, pause).await else { return };
            pause = KEEP_ALIVE;
            match self.changed(known, &told).await {
                Ok(None) => frames = Some(Frames::still_here()),
                Ok(Some(news)) => {
                    frames = Some(news.frames);
                    told = news.told;
                }
                Err(EngineError::NoWorkflow { .. }) => {
                    // The reader may have gone, too.
                    let _ = self.send(&Frames::removed(Id(self.id))).await;
                    return;
                }
                Err(_) => pause = LOOK,
            }
        }
    }

    /// What is known of the workflow when something has happened, or the time is over. None: the stream ends.
    async fn wait(&mut self, rest: Duration, pause: Duration) -> Option<Known> {
        let next = async {
            sleep(rest).await;
            // If the time is over, or nobody tells anything any more, what is known counts.
            let _ = timeout(pause, self.known.changed()).await;
            *self.known.borrow_and_update()
        };
        tokio::select! {
            known = next => Some(known),
            () = self.frames.closed() => None,
            () = self.drain.cancelled() => None,
        }
    }

    /// Sends frames to the reader when it is its turn. False: the stream has ended, since the reader has gone or there is no room for
    /// what it does not read.
    async fn send(&self, frames: &Frames) -> bool {
        tokio::select! {
            () = self.turn(frames.len()) => {}
            () = self.frames.closed() => return false,
            () = self.drain.cancelled() => return false,
        }
        tokio::select! {
            kept = frames.keep(&self.reader.room, &self.reader.caller) => match kept {
                Ok(text) => hand_over(&self.frames, text).await,
                Err(_) => false,
            },
            () = self.drain.cancelled() => false,
        }
    }

    /// Waits for the reader's turn for so many bytes.
    async fn turn(&self, bytes: usize) {
        let turn = self.view.turn(bytes);
        // A timer that is due would still take a millisecond.
        if turn > Instant::now() {
            sleep_until(turn).await;
        }
    }

    /// What has become of the workflow, if it is no longer what it was.
    async fn changed(&self, known: Known, told: &Arc<Told>) -> Result<Option<News>, EngineError> {
        match known {
            Known::Version { version, .. } if version <= told.version => Ok(None),
            Known::Version { version, .. } => {
                let since = Since::Told(Arc::clone(told));
                self.view.news((&self.engine, self.id), version, &since).await.map(Some)
            }
            Known::Removed => Err(EngineError::NoWorkflow { workflow: self.id }),
        }
    }
}

/// Gives a text to the connection in pieces. False: the reader has gone.
async fn hand_over(frames: &mpsc::Sender<Result<Bytes, Infallible>>, mut text: Bytes) -> bool {
    while !text.is_empty() {
        let piece = text.split_to(text.len().min(PIECE));
        if frames.send(Ok(piece)).await.is_err() {
            return false;
        }
    }
    true
}

/// How long a reader is told nothing after frames of so many bytes.
fn rest(bytes: usize) -> Duration {
    if bytes <= room::SMALL { Duration::ZERO } else { Duration::from_secs_f64(bytes as f64 / PACE as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of ten megabytes for 256 readers went to their connections at once, and all others waited until they were written.
    #[tokio::test]
    async fn a_long_text_leaves_turns_to_others() {
        let text: Bytes = (0..1_000_000_u32).map(|at| at as u8).collect::<Vec<_>>().into();
        let (frames, mut pieces) = mpsc::channel::<Result<Bytes, Infallible>>(FRAMES);
        let read = async {
            let mut read = Vec::new();
            while read.len() < text.len() {
                let piece = pieces.recv().await.unwrap().unwrap();
                assert!(piece.len() <= 64 * 1024 && pieces.len() <= 1, "{} bytes", piece.len());
                read.extend_from_slice(&piece);
            }
            read
        };
        let (handed, read) = tokio::join!(hand_over(&frames, text.clone()), read);
        assert!(handed && read == text);
        drop(pieces);
        assert!(!hand_over(&frames, text).await, "nobody reads");
        assert_eq!((rest(1_000), rest(8 * PACE)), (Duration::ZERO, Duration::from_secs(8)));
    }
}
