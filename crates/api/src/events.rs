//! A workflow as a stream of server-sent events.

mod feeds;
mod follower;
mod frames;
mod pacer;
mod sink;
mod snapshot;

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

use crate::http::enum_text::StateWord;
use crate::http::json::Id;
use crate::http::problem::Problem;
use crate::http::quota::{self, Caller, Quota, QuotaGuard};
use crate::http::request::{Answer, LOOK, RequestContext, in_time};
use crate::metrics::OpenStream;
use feeds::{FeedUpdate, ReaderPosition};
pub(crate) use feeds::{FeedVersion, WorkflowFeed};
pub(crate) use follower::Feeds;
use frames::Frames;
pub(crate) use frames::push_event;
pub(crate) use sink::{EventSink, Piece};
use snapshot::ReaderState;

/// How many bytes of large frames one reader gets in a second: what happens meanwhile is told at once.
const PACE: usize = 1024 * 1024;
/// Proxies close connections that say nothing for a minute.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
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

pub(crate) async fn events(ask: &RequestContext<'_>) -> Answer {
    let id = ask.workflow()?;
    let last = ask
        .headers
        .get("last-event-id")
        .map(|last| last.to_str().unwrap_or_default().to_owned());
    let (pieces, receiver) = mpsc::channel(FRAMES);
    follow(ask, id, last, EventSink::new(pieces), places(ask, 1)?).await?;
    Ok(stream(receiver).into_response())
}

/// Streams that may be open, which one reader has.
pub(crate) type Places = (QuotaGuard, OpenStream);

/// Takes the place of so many streams.
///
/// # Errors
/// All are taken, or the caller has too many.
pub(crate) fn places(ask: &RequestContext<'_>, streams: usize) -> Result<Arc<Places>, Problem> {
    let share = ask.api.rooms.streams.take(&ask.caller(), streams)?;
    Ok(Arc::new((share, ask.api.activity.open_stream())))
}

/// The answer that a reader gets piece by piece.
pub(crate) fn stream(pieces: mpsc::Receiver<Piece>) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(ReceiverStream::new(pieces)))
}

/// Follows a workflow for a reader who has all up to the version `last`; it has nothing if there is none.
///
/// # Errors
/// There is no such workflow, or it cannot be read.
pub(crate) async fn follow(
    ask: &RequestContext<'_>,
    id: WorkflowId,
    last: Option<String>,
    outlet: EventSink,
    places: Arc<Places>,
) -> Result<(), Problem> {
    let reader = Reader {
        caller: ask.caller(),
        room: ask.api.rooms.answers.clone(),
    };
    let engine = ask.api.engine().clone();
    // Before the first look, so that nothing falls between.
    let view = ask.api.follow(id).0;
    let known = view.readers();
    let version = engine.glance(id).await?.version;
    let missed = last.is_some_and(|last| last != version.to_string());
    let since = if missed {
        ReaderPosition::Ever
    } else {
        ReaderPosition::Now
    };
    let news = in_time(view.news(&engine, id, version, &since)).await?;
    let drain = ask.api.host.drain.clone();
    let watch = Watch {
        engine,
        id,
        view,
        known,
        reader,
        _places: places,
        outlet,
        drain,
    };
    ask.api.host.tasks.spawn(watch.run(news));
    Ok(())
}

/// The event that says that a workflow was removed.
pub(crate) fn removed(id: WorkflowId) -> Bytes {
    let mut text = Vec::new();
    push_event(&mut text, "removed", &RemovedEvent { id: Id(id) });
    text.into()
}

/// Who reads, and where their large frames take room.
struct Reader {
    caller: Caller,
    room: Arc<Quota>,
}

/// Follows one workflow for one reader; ends with the reader, the workflow, or the server.
struct Watch {
    engine: Engine,
    id: WorkflowId,
    view: Arc<WorkflowFeed>,
    known: watch::Receiver<FeedVersion>,
    reader: Reader,
    /// One of the streams that may be open.
    _places: Arc<Places>,
    outlet: EventSink,
    drain: CancellationToken,
}

impl Watch {
    async fn run(mut self, FeedUpdate { mut told, frames }: FeedUpdate) {
        let mut frames = Some(frames);
        // After a failure the next look may find more.
        let mut pause = KEEP_ALIVE;
        loop {
            let rest = match frames.take() {
                Some(frames) if !self.send(&frames).await => return,
                Some(frames) => rest(frames.len()),
                None => Duration::ZERO,
            };
            let Some(known) = self.wait(rest, pause).await else {
                return;
            };
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
    async fn wait(&mut self, rest: Duration, pause: Duration) -> Option<FeedVersion> {
        let next = async {
            sleep(rest).await;
            // If the time is over, or nobody tells anything any more, what is known counts.
            let _ = timeout(pause, self.known.changed()).await;
            *self.known.borrow_and_update()
        };
        tokio::select! {
            known = next => Some(known),
            () = self.outlet.closed() => None,
            () = self.drain.cancelled() => None,
        }
    }

    /// Sends frames to the reader when it is its turn. False: the stream has ended, since the reader has gone or there is no room for
    /// what it does not read.
    async fn send(&self, frames: &Frames) -> bool {
        tokio::select! {
            () = self.turn(frames.len()) => {}
            () = self.outlet.closed() => return false,
            () = self.drain.cancelled() => return false,
        }
        tokio::select! {
            kept = frames.keep(&self.reader.room, &self.reader.caller) => match kept {
                Ok(text) => self.outlet.hand_over(text).await,
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
    async fn changed(
        &self,
        known: FeedVersion,
        told: &Arc<ReaderState>,
    ) -> Result<Option<FeedUpdate>, EngineError> {
        match known {
            FeedVersion::Version { version, .. } if version <= told.version => Ok(None),
            FeedVersion::Version { version, .. } => {
                let since = ReaderPosition::Told(Arc::clone(told));
                self.view
                    .news(&self.engine, self.id, version, &since)
                    .await
                    .map(Some)
            }
            FeedVersion::Removed => Err(EngineError::NoWorkflow { workflow: self.id }),
        }
    }
}

/// How long a reader is told nothing after frames of so many bytes.
fn rest(bytes: usize) -> Duration {
    if bytes <= quota::SMALL {
        Duration::ZERO
    } else {
        Duration::from_secs_f64(bytes as f64 / PACE as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_much_rests() {
        assert_eq!(
            (rest(1_000), rest(8 * PACE)),
            (Duration::ZERO, Duration::from_secs(8))
        );
    }
}
