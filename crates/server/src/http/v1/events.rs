//! A workflow as a stream of server-sent events.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::IntoResponse;
use tidegate_workflow::{Engine, EngineError, JobIndex, JobState, Notice, Snapshot, WorkflowId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OnceCell, broadcast, mpsc};
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
    let view = ask.api.views.of(id);
    let version = engine.glance(id).await?.version;
    let look = view.look(&engine, id, version).await?;
    let (frames, receiver) = mpsc::channel(FRAMES);
    let pause = if ask.api.has_company() { LOOK } else { KEEP_ALIVE };
    let missed = last.is_some_and(|last| last != look.told.version.to_string());
    let mut text = Vec::new();
    push_changes(&mut text, if missed { &[] } else { &look.told.places }, &look);
    let watch = Watch { engine, id, view, notices, frames, look: pause, drain: ask.api.life.drain.clone() };
    ask.api.life.tasks.spawn(watch.run(Arc::clone(&look.told), text));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(Frames(receiver))).into_response())
}

/// Follows one workflow for one reader; ends with the reader, the workflow, or the server.
struct Watch {
    engine: Engine,
    id: WorkflowId,
    view: Arc<View>,
    notices: broadcast::Receiver<(WorkflowId, Arc<Notice>)>,
    frames: mpsc::Sender<Bytes>,
    look: Duration,
    drain: CancellationToken,
}

impl Watch {
    async fn run(mut self, mut told: Arc<Told>, mut text: Vec<u8>) {
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
                    told = Arc::clone(&now.told);
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
    async fn changed(&self, version: u64) -> Result<Option<Arc<Look>>, EngineError> {
        let now = self.engine.glance(self.id).await?.version;
        if now == version {
            return Ok(None);
        }
        self.view.look(&self.engine, self.id, now).await.map(Some)
    }
}

/// What a reader knows: not the workflow itself, since thousands may look at one of thousands of jobs.
#[derive(Debug)]
struct Told {
    version: u64,
    /// What each job is doing, as its place among the words.
    places: Vec<u8>,
}

/// A workflow at one version.
#[derive(Debug)]
struct Look {
    snapshot: Snapshot,
    told: Arc<Told>,
}

/// What all readers of one workflow share: each version is read once, however many want it.
#[derive(Debug, Default)]
struct View {
    latest: Mutex<(u64, Arc<OnceCell<Arc<Look>>>)>,
}

impl View {
    /// The workflow at this version or a later one.
    async fn look(&self, engine: &Engine, id: WorkflowId, version: u64) -> Result<Arc<Look>, EngineError> {
        let cell = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            if latest.0 < version {
                *latest = (version, Arc::default());
            }
            Arc::clone(&latest.1)
        };
        let read = async || {
            let snapshot = engine.show(id).await?;
            let told = Told { version: snapshot.meta().version, places: places(&snapshot) };
            Ok(Arc::new(Look { snapshot, told: Arc::new(told) }))
        };
        cell.get_or_try_init(read).await.cloned()
    }
}

/// The workflows that somebody reads events of.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<HashMap<WorkflowId, Weak<View>>>);

impl Views {
    fn of(&self, id: WorkflowId) -> Arc<View> {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if views.len() == views.capacity() {
            views.retain(|_, view| view.strong_count() > 0);
        }
        if let Some(view) = views.get(&id).and_then(Weak::upgrade) {
            return view;
        }
        let view = Arc::<View>::default();
        views.insert(id, Arc::downgrade(&view));
        view
    }
}

fn places(snapshot: &Snapshot) -> Vec<u8> {
    let place = |state: JobState| JobState::WORDS.iter().position(|word| *word == state.word()).unwrap_or_default();
    snapshot.jobs().iter().map(|job| place(job.state) as u8).collect()
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
            push_event(text, "job", job(snapshot, JobIndex(at as u16), snapshot.jobs()[at].state));
        }
    }
    text.extend_from_slice(format!("id: {}\n", now.told.version).as_bytes());
    push_event(text, "workflow", workflows::summary(snapshot));
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

#[cfg(test)]
mod tests {
    use tidegate_workflow::{
        Begin, Definition, EngineOptions, Graph, JobDefinition, MemoryStore, NewWorkflow, Store, Timestamp,
    };

    use super::*;

    #[tokio::test]
    async fn readers_of_one_workflow_share_what_is_read() {
        let store = Store::Memory(MemoryStore::new(1));
        let engine = Engine::start(store, EngineOptions::default()).await.unwrap();
        let definition =
            Definition { name: "w".to_owned(), jobs: vec![JobDefinition::new("a", "a")], ..Definition::default() };
        let mut ids = Vec::new();
        for _ in 0..1_000 {
            let graph = Graph::build(definition.clone()).unwrap();
            let new = NewWorkflow { graph, begin: Begin::Now, created_at: None };
            ids.push(engine.create(vec![new], Timestamp::from_micros(1)).await.remove(0).unwrap().workflow);
        }
        let views = Views::default();
        let (one, other) = (views.of(ids[0]), views.of(ids[0]));
        let version = engine.glance(ids[0]).await.unwrap().version;
        let first = one.look(&engine, ids[0], version).await.unwrap();
        assert!(Arc::ptr_eq(&first, &other.look(&engine, ids[0], version).await.unwrap()));
        assert!(!Arc::ptr_eq(&first, &other.look(&engine, ids[0], version + 1).await.unwrap()), "it is read again");
        ids.iter().skip(1).for_each(|id| drop(views.of(*id)));
        assert!(views.0.lock().unwrap().len() < 100, "those that nobody reads are forgotten");
        assert!(Arc::ptr_eq(&one, &views.of(ids[0])));
    }
}
