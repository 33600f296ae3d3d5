//! Sends requests to the actors of their partitions, and runs the tasks of these actors.

pub(crate) mod reply_set;
pub(in crate::engine) mod run_blocking;
pub(crate) mod thread;
pub(crate) mod thread_map;

use std::sync::Arc;

use hashbrown::HashMap;
use tokio::runtime::Handle;

use self::reply_set::ReplySet;
use self::thread::Thread;
use self::thread_map::CallerThread;
use super::actor::PartitionActor;
use super::actor::answer::Answer;
use super::actor::request::{Envelope, Request};
use super::actor::undelivered::{GiveBack, LeaseReleaser};
use super::error::EngineError;
use super::limits::unbegun::Charged;
use super::{Core, Engine};
use crate::codec::lease::LeaseRef;
use crate::id::{Partition, WorkflowId};
use crate::time::Timestamp;

impl Engine {
    /// Sends one request to the actor of its workflow, and waits for the answer.
    pub(crate) async fn request(
        &self,
        id: WorkflowId,
        request: Request,
        now: Timestamp,
    ) -> Result<Answer, EngineError> {
        let mut answers = self.request_all(vec![(id, request)], now).await;
        answers.pop().expect("one answer for one request")
    }

    /// Sends many requests at the same time. The answers are in the order of the requests.
    pub(crate) async fn request_all(
        &self,
        requests: Vec<(WorkflowId, Request)>,
        now: Timestamp,
    ) -> Vec<Result<Answer, EngineError>> {
        let replies = ReplySet::new(requests.len());
        let mut posts: HashMap<Partition, Vec<Envelope>> = HashMap::new();
        for (at, (workflow, request)) in requests.into_iter().enumerate() {
            let posted = Envelope {
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

    /// Sends requests to the actors of these partitions. Each thread is woken at most once.
    fn post(&self, posts: impl IntoIterator<Item = (Partition, Vec<Envelope>)>) {
        let mut turns: Vec<Vec<ActorTask>> = Vec::new();
        for (partition, posted) in posts {
            if self.post_one(partition, posted) {
                let thread = self.core.spread.thread_for(partition);
                turns.resize_with(turns.len().max(thread + 1), Vec::new);
                turns[thread].push(ActorTask {
                    engine: self.for_thread(thread),
                    partition,
                    served: false,
                });
            }
        }
        for (thread, turns) in self.core.threads.iter().zip(turns) {
            self.begin(thread, turns);
        }
    }

    /// Runs actors on a thread, each in a task.
    fn begin(&self, thread: &Thread, mut turns: Vec<ActorTask>) {
        let Some(last) = turns.pop() else { return };
        let tasks = self.core.tasks.clone();
        thread.spawn(&self.core.tasks, async move {
            turns
                .into_iter()
                .for_each(|turn| drop(tasks.spawn(turn.serve())));
            last.serve().await;
        });
    }

    /// Returns the thread of this handle.
    pub(crate) fn caller_thread(&self) -> CallerThread<'_> {
        self.core.spread.near(self.thread)
    }

    /// Queues requests about workflows of one partition. Returns whether the caller must start the
    /// task of its actor.
    fn post_one(&self, partition: Partition, posted: Vec<Envelope>) -> bool {
        let Some(desk) = self.core.desks.get(usize::from(partition.0)) else {
            // The id names a partition that this store does not have.
            posted.into_iter().for_each(|posted| {
                let workflow = posted.workflow;
                posted.answer(Err(EngineError::NoWorkflow { workflow }));
            });
            return false;
        };
        desk.enqueue(posted).unwrap_or_else(|(posted, error)| {
            posted
                .into_iter()
                .for_each(|posted| posted.answer(Err(error.clone())));
            false
        })
    }
}

/// Without a runtime nothing can be written. Then leases and permits end when they expire.
impl LeaseReleaser for Engine {
    fn give_back(&self, lease: LeaseRef, fence: u64, now: Timestamp) {
        if Handle::try_current().is_ok() {
            let LeaseRef {
                workflow,
                job,
                token,
            } = lease;
            let request = Request::GiveBack { job, token, fence };
            let answer = ReplySet::new(1).reply(0);
            self.post([(
                workflow.partition(),
                vec![Envelope {
                    workflow,
                    request,
                    now,
                    answer,
                }],
            )]);
        }
    }

    fn release_permits(&self, places: Vec<(String, LeaseRef)>) {
        self.release_later(places);
    }

    fn refund(&self, charged: Charged) {
        self.refund(charged, 1);
    }
}

/// The task of an actor. It may be dropped with its runtime while requests still arrive.
#[derive(Debug)]
struct ActorTask {
    engine: Engine,
    partition: Partition,
    served: bool,
}

impl ActorTask {
    /// Serves all queued requests.
    async fn serve(mut self) {
        let give_back: GiveBack = Arc::new(self.engine.clone());
        let Core {
            context, states, ..
        } = &*self.engine.core;
        self.desk()
            .run(context, self.engine.store(), states, &give_back)
            .await;
        self.served = true;
    }

    fn desk(&self) -> &PartitionActor {
        &self.engine.core.desks[usize::from(self.partition.0)]
    }
}

impl Drop for ActorTask {
    fn drop(&mut self) {
        if !self.served {
            self.desk().on_task_lost();
        }
    }
}
