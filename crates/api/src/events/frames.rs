//! Frames that readers of a workflow get. A text for many readers is written and held once.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::body::Bytes;
use serde::Serialize;

use super::snapshot::FeedSnapshot;
use super::{JobEvent, RemovedEvent};
use crate::http::json::{self, Id};
use crate::http::problem::Problem;
use crate::http::quota::{self, Caller, Quota, QuotaGuard, SMALL};
use crate::workflows::view::Workflow;

/// Frames for any number of readers.
#[derive(Debug)]
pub(super) struct Frames {
    text: Bytes,
    /// Quota of the text, once for each caller that has readers of it.
    shares: Mutex<Vec<(Caller, Weak<QuotaGuard>)>>,
}

impl Frames {
    fn new(text: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            text: text.into(),
            shares: Mutex::default(),
        })
    }

    /// Comment that says that nothing has changed.
    pub(super) fn still_here() -> Arc<Self> {
        Self::new(b": still here\n\n".to_vec())
    }

    /// The workflow was removed.
    pub(super) fn removed(id: Id) -> Arc<Self> {
        let mut text = Vec::new();
        push_event(&mut text, "removed", &RemovedEvent { id });
        Self::new(text)
    }

    /// Writes the jobs whose state differs from the state that the reader has, and then the
    /// workflow. A reader that has the workflow's version has all jobs, too.
    pub(super) fn changes(told: &[u8], now: &FeedSnapshot) -> Arc<Self> {
        let snapshot = &now.snapshot;
        let mut text = Vec::new();
        for (at, place) in now.told.places.iter().enumerate() {
            if told.get(at) != Some(place) {
                let about = &snapshot.graph().jobs[at];
                let state = snapshot.jobs()[at].state;
                push_event(
                    &mut text,
                    "job",
                    &JobEvent {
                        name: &about.name,
                        state: state.into(),
                        index: at,
                    },
                );
            }
        }
        text.extend_from_slice(format!("id: {}\n", now.told.version).as_bytes());
        push_event(&mut text, "workflow", &Workflow::of(snapshot));
        Self::new(text)
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the text for a reader. A large text holds quota of its caller until the last of the
    /// caller's readers has it.
    ///
    /// # Errors
    /// There was no quota for it in time.
    pub(super) async fn keep(&self, room: &Arc<Quota>, caller: &Caller) -> Result<Bytes, Problem> {
        if self.len() <= SMALL {
            return Ok(self.text.clone());
        }
        let share = match self.share(caller, || room.take(caller, self.len()).ok()) {
            Some(share) => share,
            None => {
                let share = room.wait(caller, self.len()).await?;
                self.share(caller, || Some(share)).expect("one was given")
            }
        };
        Ok(quota::hold(self.text.clone(), share))
    }

    /// Returns the guard that another reader of the caller holds, or a new one.
    fn share(
        &self,
        caller: &Caller,
        take: impl FnOnce() -> Option<QuotaGuard>,
    ) -> Option<Arc<QuotaGuard>> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let own = shares.iter().find(|(of, _)| of == caller);
        if let Some(share) = own.and_then(|(_, share)| share.upgrade()) {
            return Some(share);
        }
        let share = Arc::new(take()?);
        shares.retain(|(_, share)| share.strong_count() > 0);
        shares.push((caller.clone(), Arc::downgrade(&share)));
        Some(share)
    }
}

pub(crate) fn push_event(text: &mut Vec<u8>, event: &str, data: &impl Serialize) {
    text.extend_from_slice(b"event: ");
    text.extend_from_slice(event.as_bytes());
    text.extend_from_slice(b"\ndata: ");
    json::add(text, data);
    text.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thirteen readers of a text of ten megabytes used up the quota of their caller, and were cut
    /// off.
    #[tokio::test]
    async fn readers_of_one_caller_share_the_room_of_a_text() {
        let room = Quota::new("tests", 4 * SMALL, 3 * SMALL);
        let [one, two] = ["one", "two"].map(|name| Caller::Token(name.to_owned()));
        let frames = Frames::new(vec![b'x'; 2 * SMALL]);
        let mut kept = Vec::new();
        for _ in 0..100 {
            kept.push(frames.keep(&room, &one).await.unwrap());
        }
        assert!(
            kept.iter().all(|text| text.as_ptr() == kept[0].as_ptr()),
            "it is held once"
        );
        kept.push(frames.keep(&room, &two).await.unwrap());
        assert!(room.take(&two, 1).is_err(), "all is taken");
        drop(kept);
        drop((room.take(&one, 3 * SMALL).unwrap(), frames));
    }
}
