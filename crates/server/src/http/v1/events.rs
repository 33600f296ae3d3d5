//! A workflow as a stream of server-sent events.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::IntoResponse;
use tidegate_workflow::{Engine, EngineError, JobIndex, JobState, Notice, Snapshot, WorkflowId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::codegen::tokio_stream::Stream;

use super::json::Json;
use super::query::Query;
use super::{Answer, Ask, LOOK, workflows};

/// What happens within this time is told at once: four times a second is as much as anybody sees.
const GATHER: Duration = Duration::from_millis(250);
/// Proxies close connections that say nothing for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Frames that wait for a reader who is slow; then nothing is read of the store either.
const FRAMES: usize = 4;

pub(super) async fn events(ask: &Ask<'_>) -> Answer {
    let id = ask.workflow()?;
    Query::new(ask.query)?.end()?;
    let last = ask.headers.get("last-event-id").map(|last| last.to_str().unwrap_or_default().to_owned());
    let engine = ask.api.engine.clone();
    // Before the first look, so that nothing falls between.
    let notices = engine.notices();
    let snapshot = engine.show(id).await?;
    let (frames, receiver) = mpsc::channel(FRAMES);
    let look = if ask.api.has_company() { LOOK } else { KEEP_ALIVE };
    let watch = Watch { engine, id, notices, frames, look, drain: ask.api.life.drain.clone() };
    let version = snapshot.meta().version;
    let missed = last.is_some_and(|last| last != version.to_string());
    let told = Told { version, places: if missed { Vec::new() } else { places(&snapshot) } };
    let mut text = Vec::new();
    push_changes(&mut text, &told.places, &snapshot);
    ask.api.life.tasks.spawn(watch.run(Told { version, places: places(&snapshot) }, text));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(Frames(receiver))).into_response())
}

/// Follows one workflow for one reader; ends with the reader, the workflow, or the server.
struct Watch {
    engine: Engine,
    id: WorkflowId,
    notices: broadcast::Receiver<(WorkflowId, std::sync::Arc<Notice>)>,
    frames: mpsc::Sender<Bytes>,
    look: Duration,
    drain: CancellationToken,
}

impl Watch {
    async fn run(mut self, mut told: Told, mut text: Vec<u8>) {
        let mut silent = Duration::ZERO;
        loop {
            if !text.is_empty() && self.frames.send(std::mem::take(&mut text).into()).await.is_err() {
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
                    told = Told { version: now.meta().version, places: places(&now) };
                }
                Err(EngineError::NoWorkflow { .. }) => {
                    push_event(&mut text, "removed", Json::of(|json| json.key("id").plain(self.id)));
                    // The reader may have gone, too.
                    let _ = self.frames.send(text.into()).await;
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

    /// The workflow, if it is no longer what it was.
    async fn changed(&self, version: u64) -> Result<Option<Snapshot>, EngineError> {
        if self.engine.glance(self.id).await?.version == version {
            return Ok(None);
        }
        self.engine.show(self.id).await.map(Some)
    }
}

/// What a reader knows: not the workflow itself, since thousands may look at one of thousands of jobs.
struct Told {
    version: u64,
    /// What each job is doing, as its place among the words.
    places: Vec<u8>,
}

fn places(snapshot: &Snapshot) -> Vec<u8> {
    let place = |state: JobState| JobState::WORDS.iter().position(|word| *word == state.word()).unwrap_or_default();
    snapshot.jobs().iter().map(|job| place(job.state) as u8).collect()
}

/// Returns when something may have happened to the workflow.
async fn heard(notices: &mut broadcast::Receiver<(WorkflowId, std::sync::Arc<Notice>)>, id: WorkflowId) {
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
fn push_changes(text: &mut Vec<u8>, told: &[u8], now: &Snapshot) {
    for (at, place) in places(now).into_iter().enumerate() {
        if told.get(at) != Some(&place) {
            push_event(text, "job", job(now, JobIndex(at as u16), now.jobs()[at].state));
        }
    }
    text.extend_from_slice(format!("id: {}\n", now.meta().version).as_bytes());
    push_event(text, "workflow", workflows::summary(now));
}

fn job(snapshot: &Snapshot, index: JobIndex, state: JobState) -> Json {
    Json::of(|json| {
        json.key("name").string(&snapshot.graph().jobs[index.index()].name);
        json.key("state").plain(state.word());
        json.key("index").number(index.0);
    })
}

fn push_event(text: &mut Vec<u8>, event: &str, data: Json) {
    text.extend_from_slice(format!("event: {event}\ndata: ").as_bytes());
    text.extend_from_slice(&data.text());
    text.extend_from_slice(b"\n\n");
}

/// The frames as a body.
struct Frames(mpsc::Receiver<Bytes>);

impl Stream for Frames {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}
