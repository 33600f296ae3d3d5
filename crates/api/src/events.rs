//! Server-sent events about one workflow.

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

/// Bytes of large frames that one reader gets in a second. Changes during the pause are sent as one
/// update.
const PACE: usize = 1024 * 1024;
/// Interval of the comment that keeps an idle stream open. Proxies close connections without
/// traffic after a minute.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Frames that are queued for a slow reader. While the queue is full, the store is not read either.
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

/// Quota of the streams that one reader has open.
pub(crate) type Places = (QuotaGuard, OpenStream);

/// Reserves quota for this number of streams.
///
/// # Errors
/// All streams are in use, or the caller has too many.
pub(crate) fn places(ask: &RequestContext<'_>, streams: usize) -> Result<Arc<Places>, Problem> {
    let share = ask.api.rooms.streams.take(&ask.caller(), streams)?;
    Ok(Arc::new((share, ask.api.activity.open_stream())))
}

/// Response whose body is sent chunk by chunk.
pub(crate) fn stream(pieces: mpsc::Receiver<Piece>) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(ReceiverStream::new(pieces)))
}

/// Follows a workflow for a reader that has all changes up to the version `last`. `None` if the
/// reader has nothing yet.
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
    // The subscription begins before the first read, so that no change falls between.
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

/// Caller of the stream, and the quota for its large frames.
struct Reader {
    caller: Caller,
    room: Arc<Quota>,
}

/// Follows one workflow for one reader. It ends with the reader, the workflow, or the server.
struct Watch {
    engine: Engine,
    id: WorkflowId,
    view: Arc<WorkflowFeed>,
    known: watch::Receiver<FeedVersion>,
    reader: Reader,
    /// Quota of this stream.
    _places: Arc<Places>,
    outlet: EventSink,
    drain: CancellationToken,
}

impl Watch {
    async fn run(mut self, FeedUpdate { mut told, frames }: FeedUpdate) {
        let mut frames = Some(frames);
        // After a failure the next read may succeed.
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

    /// Returns the known version after a change, or when the time is over. `None` if the stream
    /// ends.
    async fn wait(&mut self, rest: Duration, pause: Duration) -> Option<FeedVersion> {
        let next = async {
            sleep(rest).await;
            // If the time is over, or the sender has gone, the version that is known counts.
            let _ = timeout(pause, self.known.changed()).await;
            *self.known.borrow_and_update()
        };
        tokio::select! {
            known = next => Some(known),
            () = self.outlet.closed() => None,
            () = self.drain.cancelled() => None,
        }
    }

    /// Sends frames to the reader when the pacer allows it. False if the stream has ended, because
    /// the reader has gone or there is no quota for its unread frames.
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

    /// Waits until the pacer lets this number of bytes through.
    async fn turn(&self, bytes: usize) {
        let turn = self.view.turn(bytes);
        // A timer that is due would still take a millisecond.
        if turn > Instant::now() {
            sleep_until(turn).await;
        }
    }

    /// Returns the update of the workflow if its version is newer than the state of the reader.
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

/// Pause of a reader after frames of this number of bytes.
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
