//! Frames that readers of a workflow get. A text for many readers is written and held once.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
#[cfg(test)]
use utoipa::ToSchema;

use super::snapshot::FeedSnapshot;
use crate::http::enum_text::StateWord;
use crate::http::json::{self, Id};
use crate::http::lock;
use crate::http::problem::Problem;
use crate::http::quota::{self, Caller, MAX_UNRESERVED_BYTES, Quota, QuotaGuard};
use crate::views::workflow::Workflow;

/// A job of the workflow is doing something else.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct JobEvent<'a> {
    pub(crate) name: &'a str,
    pub(crate) state: StateWord,
    pub(crate) index: usize,
}

/// The workflow was removed: this is the last event.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct RemovedEvent {
    pub(crate) id: Id,
}

/// Frames for any number of readers.
#[derive(Debug)]
pub(crate) struct Frames {
    text: Bytes,
    /// Quota of the text, once for each caller that has readers of it.
    guards: Mutex<Vec<(Caller, Weak<QuotaGuard>)>>,
}

impl Frames {
    fn new(text: impl Into<Bytes>) -> Arc<Self> {
        Arc::new(Self {
            text: text.into(),
            guards: Mutex::default(),
        })
    }

    /// Comment that says that nothing has changed.
    pub(crate) fn still_here() -> Arc<Self> {
        Self::new(KEEP_ALIVE_COMMENT)
    }

    /// The workflow was removed.
    pub(crate) fn removed(id: Id) -> Arc<Self> {
        Self::new(removed_event(id))
    }

    /// Writes the jobs whose state differs from the state that the reader has, and then the
    /// workflow. A reader that has the workflow's version has all jobs, too.
    pub(super) fn changes(known_states: &[u8], current: &FeedSnapshot) -> Arc<Self> {
        let snapshot = &current.snapshot;
        let mut text = Vec::new();
        for (index, state_index) in current.state.job_states.iter().enumerate() {
            if known_states.get(index) != Some(state_index) {
                let definition = &snapshot.graph().jobs[index];
                let state = snapshot.jobs()[index].state;
                push_event(
                    &mut text,
                    "job",
                    &JobEvent {
                        name: &definition.name,
                        state: state.into(),
                        index,
                    },
                );
            }
        }
        text.extend_from_slice(format!("id: {}\n", current.state.version).as_bytes());
        push_event(&mut text, "workflow", &Workflow::from_snapshot(snapshot));
        Self::new(text)
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the text for a reader. A large text holds quota of its caller until the last of the
    /// caller's readers has it.
    ///
    /// # Errors
    /// There was no quota for it in time.
    pub(crate) async fn text_for(
        &self,
        quota: &Arc<Quota>,
        caller: &Caller,
    ) -> Result<Bytes, Problem> {
        if self.len() <= MAX_UNRESERVED_BYTES {
            return Ok(self.text.clone());
        }
        let guard = match self.guard_for(caller, || quota.try_reserve(caller, self.len()).ok()) {
            Some(guard) => guard,
            None => {
                let guard = quota.reserve_or_wait(caller, self.len()).await?;
                self.guard_for(caller, || Some(guard))
                    .expect("one was given")
            }
        };
        Ok(quota::attach_guard(self.text.clone(), guard))
    }

    /// Returns the guard that another reader of the caller holds, or a new one.
    fn guard_for(
        &self,
        caller: &Caller,
        reserve: impl FnOnce() -> Option<QuotaGuard>,
    ) -> Option<Arc<QuotaGuard>> {
        let mut guards = lock(&self.guards);
        let existing = guards.iter().find(|(of, _)| of == caller);
        if let Some(guard) = existing.and_then(|(_, guard)| guard.upgrade()) {
            return Some(guard);
        }
        let guard = Arc::new(reserve()?);
        guards.retain(|(_, guard)| guard.strong_count() > 0);
        guards.push((caller.clone(), Arc::downgrade(&guard)));
        Some(guard)
    }
}

/// Interval of the comment that keeps an idle stream open. Proxies close connections without
/// traffic after a minute.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
pub(crate) const KEEP_ALIVE_COMMENT: &[u8] = b": still here\n\n";

/// Chunk of a response body.
pub(crate) type BodyChunk = Result<Bytes, Infallible>;

/// Response whose body is sent chunk by chunk.
pub(crate) fn stream(chunks: mpsc::Receiver<BodyChunk>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(ReceiverStream::new(chunks))).into_response()
}

/// Returns the text of one event.
pub(crate) fn event_text(event: &str, data: &impl Serialize) -> Bytes {
    let mut text = Vec::new();
    push_event(&mut text, event, data);
    text.into()
}

/// The event that says that a workflow was removed.
pub(crate) fn removed_event(id: Id) -> Bytes {
    event_text("removed", &RemovedEvent { id })
}

pub(crate) fn push_event(text: &mut Vec<u8>, event: &str, data: &impl Serialize) {
    text.extend_from_slice(b"event: ");
    text.extend_from_slice(event.as_bytes());
    text.extend_from_slice(b"\ndata: ");
    json::append(text, data);
    text.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thirteen readers of a text of ten megabytes used up the quota of their caller, and were cut
    /// off.
    #[tokio::test]
    async fn readers_of_one_caller_share_the_room_of_a_text() {
        let room = Quota::new("tests", 4 * MAX_UNRESERVED_BYTES, 3 * MAX_UNRESERVED_BYTES);
        let [one, two] = ["one", "two"].map(|name| Caller::Token(name.to_owned()));
        let frames = Frames::new(vec![b'x'; 2 * MAX_UNRESERVED_BYTES]);
        let mut kept = Vec::new();
        for _ in 0..100 {
            kept.push(frames.text_for(&room, &one).await.unwrap());
        }
        assert!(
            kept.iter().all(|text| text.as_ptr() == kept[0].as_ptr()),
            "it is held once"
        );
        kept.push(frames.text_for(&room, &two).await.unwrap());
        assert!(room.try_reserve(&two, 1).is_err(), "all is taken");
        drop(kept);
        drop((
            room.try_reserve(&one, 3 * MAX_UNRESERVED_BYTES).unwrap(),
            frames,
        ));
    }
}
