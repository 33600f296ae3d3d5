//! How requests reach the desk of their partition, and the task that serves it.

pub(in crate::engine) mod apart;
pub(crate) mod replies;
pub(crate) mod spread;
pub(crate) mod thread;

use std::sync::Arc;

use hashbrown::HashMap;
use tokio::runtime::Handle;

use self::replies::Replies;
use self::spread::Near;
use self::thread::Thread;
use super::desk::Desk;
use super::desk::answer::Answer;
use super::desk::request::{Posted, Request};
use super::desk::undelivered::{GiveBack, Returns};
use super::error::EngineError;
use super::limits::unbegun::Charged;
use super::{Core, Engine};
use crate::id::{Partition, WorkflowId};
use crate::record::lease::LeaseRef;
use crate::time::Timestamp;

impl Engine {
    /// Sends one request to the desk of its workflow and waits for the answer.
    pub(crate) async fn ask(
        &self,
        id: WorkflowId,
        request: Request,
        now: Timestamp,
    ) -> Result<Answer, EngineError> {
        let mut answers = self.ask_all(vec![(id, request)], now).await;
        answers.pop().expect("one answer for one request")
    }

    /// Sends many requests at the same time. The answers are in the same order.
    pub(crate) async fn ask_all(
        &self,
        requests: Vec<(WorkflowId, Request)>,
        now: Timestamp,
    ) -> Vec<Result<Answer, EngineError>> {
        let replies = Replies::new(requests.len());
        let mut posts: HashMap<Partition, Vec<Posted>> = HashMap::new();
        for (at, (workflow, request)) in requests.into_iter().enumerate() {
            let posted = Posted {
                workflow,
                request,
                now,
                answer: replies.reply(at),
            };
            posts.entry(workflow.partition()).or_default().push(posted);
        }
        self.post(posts);
        replies.all().await
    }

    /// Posts requests by partition. Those of one thread wake it once.
    fn post(&self, posts: impl IntoIterator<Item = (Partition, Vec<Posted>)>) {
        let mut turns: Vec<Vec<Turn>> = Vec::new();
        for (partition, posted) in posts {
            if self.post_one(partition, posted) {
                let thread = self.core.spread.of(partition);
                turns.resize_with(turns.len().max(thread + 1), Vec::new);
                turns[thread].push(Turn {
                    engine: self.on(thread),
                    partition,
                    served: false,
                });
            }
        }
        for (thread, turns) in self.core.threads.iter().zip(turns) {
            self.begin(thread, turns);
        }
    }

    /// Serves desks on a thread, each for itself.
    fn begin(&self, thread: &Thread, mut turns: Vec<Turn>) {
        let Some(last) = turns.pop() else { return };
        let tasks = self.core.tasks.clone();
        thread.spawn(&self.core.tasks, async move {
            turns
                .into_iter()
                .for_each(|turn| drop(tasks.spawn(turn.serve())));
            last.serve().await;
        });
    }

    /// The thread of whoever asks this engine.
    pub(crate) fn near(&self) -> Near<'_> {
        self.core.spread.near(self.thread)
    }

    /// Posts requests about workflows of one partition. Returns whether its desk must be served from now on.
    fn post_one(&self, partition: Partition, posted: Vec<Posted>) -> bool {
        let Some(desk) = self.core.desks.get(usize::from(partition.0)) else {
            // The id names a partition that this store does not have.
            posted.into_iter().for_each(|posted| {
                let workflow = posted.workflow;
                posted.answer(Err(EngineError::NoWorkflow { workflow }));
            });
            return false;
        };
        desk.post(posted).unwrap_or_else(|(posted, error)| {
            posted
                .into_iter()
                .for_each(|posted| posted.answer(Err(error.clone())));
            false
        })
    }
}

/// Without a runtime nothing can be written; then leases and places end later.
impl Returns for Engine {
    fn give_back(&self, lease: LeaseRef, fence: u64, now: Timestamp) {
        if Handle::try_current().is_ok() {
            let LeaseRef {
                workflow,
                job,
                token,
            } = lease;
            let request = Request::GiveBack { job, token, fence };
            let answer = Replies::new(1).reply(0);
            self.post([(
                workflow.partition(),
                vec![Posted {
                    workflow,
                    request,
                    now,
                    answer,
                }],
            )]);
        }
    }

    fn free(&self, places: Vec<(String, LeaseRef)>) {
        self.release_later(places);
    }

    fn refund(&self, charged: Charged) {
        self.refund(charged, 1);
    }
}

/// The task of a desk. It may be dropped with its runtime while requests still arrive.
#[derive(Debug)]
struct Turn {
    engine: Engine,
    partition: Partition,
    served: bool,
}

impl Turn {
    /// Serves all requests that wait.
    async fn serve(mut self) {
        let give_back: GiveBack = Arc::new(self.engine.clone());
        let Core {
            context, states, ..
        } = &*self.engine.core;
        self.desk()
            .serve(context, self.engine.store(), states, &give_back)
            .await;
        self.served = true;
    }

    fn desk(&self) -> &Desk {
        &self.engine.core.desks[usize::from(self.partition.0)]
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.served {
            self.desk().abandon();
        }
    }
}
