//! Server-sent events about one workflow.

pub(crate) mod live;
mod sink;

use std::sync::Arc;
use std::time::Duration;

use tidegate_workflow::{Engine, EngineError, WorkflowId};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use tokio_util::sync::CancellationToken;

use crate::http::json::Id;
use crate::http::problem::Problem;
use crate::http::quota::{self, Caller, Quota, QuotaGuard};
use crate::state::app_state::{
    HandlerResult, RequestContext, WORKFLOW_POLL_INTERVAL, with_read_timeout,
};

use crate::state::feeds::frames::{Frames, KEEP_ALIVE_INTERVAL, stream};
use crate::state::feeds::snapshot::ReaderState;
use crate::state::feeds::{FeedUpdate, ReaderPosition};
use crate::state::feeds::{FeedVersion, WorkflowFeed};
use crate::state::metrics::OpenStream;
pub(crate) use sink::EventSink;

/// Bytes of large frames that one reader gets in a second. Changes during the pause are sent as one
/// update.
const LARGE_FRAME_BYTES_PER_SECOND: usize = 1024 * 1024;

/// Frames that are queued for a slow reader. While the queue is full, the store is not read either.
const MAX_QUEUED_FRAMES: usize = 1;

pub(crate) async fn events(request: &RequestContext<'_>) -> HandlerResult {
    let id = request.workflow()?;
    let last_version = request
        .headers
        .get("last-event-id")
        .map(|last_version| last_version.to_str().unwrap_or_default().to_owned());
    let (chunks, receiver) = mpsc::channel(MAX_QUEUED_FRAMES);
    follow(
        request,
        id,
        last_version,
        EventSink::new(chunks),
        reserve_streams(request, 1)?,
    )
    .await?;
    Ok(stream(receiver))
}

/// Quota of the streams that one reader has open.
pub(crate) type StreamSlots = (QuotaGuard, OpenStream);

/// Reserves quota for this number of streams.
///
/// # Errors
/// All streams are in use, or the caller has too many.
pub(crate) fn reserve_streams(
    request: &RequestContext<'_>,
    streams: usize,
) -> Result<Arc<StreamSlots>, Problem> {
    let guard = request
        .api
        .quotas
        .streams
        .try_reserve(&request.caller(), streams)?;
    Ok(Arc::new((guard, request.api.metrics.open_stream())))
}

/// Follows a workflow for a reader that has all changes up to the version `last`. `None` if the
/// reader has nothing yet.
///
/// # Errors
/// There is no such workflow, or it cannot be read.
pub(crate) async fn follow(
    request: &RequestContext<'_>,
    id: WorkflowId,
    last_version: Option<String>,
    sink: EventSink,
    slots: Arc<StreamSlots>,
) -> Result<(), Problem> {
    let reader = ReaderQuota {
        caller: request.caller(),
        answer_quota: request.api.quotas.answers.clone(),
    };
    let engine = request.engine().clone();
    // The subscription begins before the first read, so that no change falls between.
    let feed = request.api.follow(id).0;
    let versions = feed.subscribe_coalesced();
    let version = engine.workflow_meta(id).await?.version;
    let read = async |version: u64| {
        let since = match &last_version {
            Some(last) if *last != version.to_string() => ReaderPosition::FromStart,
            _ => ReaderPosition::LatestOnly,
        };
        with_read_timeout(feed.update(&engine, id, version, &since)).await
    };
    let mut update = read(version).await?;
    let latest = update.state.version;
    // If the workflow changed after its version was read, the reader may lack jobs.
    if latest != version {
        update = read(latest).await?;
    }
    let drain = request.api.hooks.drain.clone();
    let stream = WorkflowStream {
        engine,
        id,
        feed,
        versions,
        quota: reader,
        _slots: slots,
        sink,
        drain,
    };
    request.api.hooks.tasks.spawn(stream.run(update));
    Ok(())
}

/// Caller of the stream, and the quota for its large frames.
struct ReaderQuota {
    caller: Caller,
    answer_quota: Arc<Quota>,
}

/// Follows one workflow for one reader. It ends with the reader, the workflow, or the server.
struct WorkflowStream {
    engine: Engine,
    id: WorkflowId,
    feed: Arc<WorkflowFeed>,
    versions: watch::Receiver<FeedVersion>,
    quota: ReaderQuota,
    /// Quota of this stream.
    _slots: Arc<StreamSlots>,
    sink: EventSink,
    drain: CancellationToken,
}

impl WorkflowStream {
    async fn run(mut self, FeedUpdate { mut state, frames }: FeedUpdate) {
        let mut frames = Some(frames);
        // After a failure the next read may succeed.
        let mut max_pause = KEEP_ALIVE_INTERVAL;
        loop {
            let min_pause = match frames.take() {
                Some(frames) if !self.send(&frames).await => return,
                Some(frames) => pause_after(frames.len()),
                None => Duration::ZERO,
            };
            let Some(latest) = self.wait(min_pause, max_pause).await else {
                return;
            };
            max_pause = KEEP_ALIVE_INTERVAL;
            match self.update_since(latest, &state).await {
                Ok(None) => frames = Some(Frames::still_here()),
                Ok(Some(update)) => {
                    frames = Some(update.frames);
                    state = update.state;
                }
                Err(EngineError::NoWorkflow { .. }) => {
                    // The reader may have gone, too.
                    let _ = self.send(&Frames::removed(Id(self.id))).await;
                    return;
                }
                Err(_) => max_pause = WORKFLOW_POLL_INTERVAL,
            }
        }
    }

    /// Returns the known version after a change, or when the time is over. `None` if the stream
    /// ends.
    async fn wait(&mut self, min_pause: Duration, max_pause: Duration) -> Option<FeedVersion> {
        let next = async {
            sleep(min_pause).await;
            // If the time is over, or the sender has gone, the version that is known counts.
            let _ = timeout(max_pause, self.versions.changed()).await;
            *self.versions.borrow_and_update()
        };
        tokio::select! {
            known = next => Some(known),
            () = self.sink.closed() => None,
            () = self.drain.cancelled() => None,
        }
    }

    /// Sends frames to the reader when the pacer allows it. False if the stream has ended, because
    /// the reader has gone or there is no quota for its unread frames.
    async fn send(&self, frames: &Frames) -> bool {
        tokio::select! {
            () = self.wait_for_pacer(frames.len()) => {}
            () = self.sink.closed() => return false,
            () = self.drain.cancelled() => return false,
        }
        tokio::select! {
            kept = frames.text_for(&self.quota.answer_quota, &self.quota.caller) => match kept {
                Ok(text) => self.sink.send(text).await,
                Err(_) => false,
            },
            () = self.drain.cancelled() => false,
        }
    }

    /// Waits until the pacer lets this number of bytes through.
    async fn wait_for_pacer(&self, bytes: usize) {
        let send_at = self.feed.reserve_send(bytes);
        // A timer that is due would still take a millisecond.
        if send_at > Instant::now() {
            sleep_until(send_at).await;
        }
    }

    /// Returns the update of the workflow if its version is newer than the state of the reader.
    async fn update_since(
        &self,
        latest: FeedVersion,
        state: &Arc<ReaderState>,
    ) -> Result<Option<FeedUpdate>, EngineError> {
        match latest {
            FeedVersion::Version { version, .. } if version <= state.version => Ok(None),
            FeedVersion::Version { version, .. } => {
                let since = ReaderPosition::After(Arc::clone(state));
                self.feed
                    .update(&self.engine, self.id, version, &since)
                    .await
                    .map(Some)
            }
            FeedVersion::Removed => Err(EngineError::NoWorkflow { workflow: self.id }),
        }
    }
}

/// Pause of a reader after frames of this number of bytes.
fn pause_after(bytes: usize) -> Duration {
    if bytes <= quota::MAX_UNRESERVED_BYTES {
        Duration::ZERO
    } else {
        Duration::from_secs_f64(bytes as f64 / LARGE_FRAME_BYTES_PER_SECOND as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_much_rests() {
        assert_eq!(
            (
                pause_after(1_000),
                pause_after(8 * LARGE_FRAME_BYTES_PER_SECOND)
            ),
            (Duration::ZERO, Duration::from_secs(8))
        );
    }
}
