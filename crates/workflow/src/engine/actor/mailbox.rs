//! Sends requests to the actors of their partitions, and runs the tasks of these actors.

use std::sync::Arc;

use hashbrown::HashMap;
use tokio::runtime::Handle;

use super::PartitionActor;
use super::answer::Answer;
use super::assign::undelivered_lease::{LeaseReleaser, SharedLeaseReleaser};
use super::reply_set::ReplySet;
use super::request::{Envelope, Request};
use crate::engine::context::error::EngineError;
use crate::engine::context::thread::EngineThread;
use crate::engine::limits::unstarted::ChargedUnits;
use crate::engine::{Core, Engine};
use crate::model::{LeaseRef, Partition, Timestamp, WorkflowId};

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
        let mut envelopes_by_partition: HashMap<Partition, Vec<Envelope>> = HashMap::new();
        for (at, (workflow, request)) in requests.into_iter().enumerate() {
            let envelope = Envelope {
                workflow,
                request,
                now,
                reply: replies.sender(at),
            };
            envelopes_by_partition
                .entry(workflow.partition())
                .or_default()
                .push(envelope);
        }
        self.send(envelopes_by_partition);
        replies.wait().await
    }

    /// Sends requests to the actors of these partitions. Each thread is woken at most once.
    fn send(&self, envelopes_by_partition: impl IntoIterator<Item = (Partition, Vec<Envelope>)>) {
        let mut actor_tasks: Vec<Vec<ActorTask>> = Vec::new();
        for (partition, envelopes) in envelopes_by_partition {
            if self.send_to_partition(partition, envelopes) {
                let thread = self.core.thread_map.thread_for(partition);
                actor_tasks.resize_with(actor_tasks.len().max(thread + 1), Vec::new);
                actor_tasks[thread].push(ActorTask {
                    engine: self.for_thread(thread),
                    partition,
                    finished: false,
                });
            }
        }
        for (thread, actor_tasks) in self.core.threads.iter().zip(actor_tasks) {
            self.run_actors(thread, actor_tasks);
        }
    }

    /// Runs actors on a thread, each in a task.
    fn run_actors(&self, thread: &EngineThread, mut actor_tasks: Vec<ActorTask>) {
        let Some(last) = actor_tasks.pop() else {
            return;
        };
        let tasks = self.core.tasks.clone();
        thread.spawn(&self.core.tasks, async move {
            actor_tasks
                .into_iter()
                .for_each(|actor_task| drop(tasks.spawn(actor_task.run())));
            last.run().await;
        });
    }

    /// Queues requests about workflows of one partition. Returns whether the caller must start the
    /// task of its actor.
    fn send_to_partition(&self, partition: Partition, envelopes: Vec<Envelope>) -> bool {
        let Some(actor) = self.core.actors.get(usize::from(partition.0)) else {
            // The id names a partition that this store does not have.
            envelopes.into_iter().for_each(|envelope| {
                let workflow = envelope.workflow;
                envelope.send_reply(Err(EngineError::NoWorkflow { workflow }));
            });
            return false;
        };
        actor
            .enqueue(envelopes)
            .unwrap_or_else(|(envelopes, error)| {
                envelopes
                    .into_iter()
                    .for_each(|envelope| envelope.send_reply(Err(error.clone())));
                false
            })
    }
}

/// Without a runtime nothing can be written. Then leases and permits end when they expire.
impl LeaseReleaser for Engine {
    fn release_lease(&self, lease: LeaseRef, fence: u64, now: Timestamp) {
        if Handle::try_current().is_ok() {
            let LeaseRef {
                workflow,
                job,
                token,
            } = lease;
            let request = Request::ReleaseLease { job, token, fence };
            let reply = ReplySet::new(1).sender(0);
            self.send([(
                workflow.partition(),
                vec![Envelope {
                    workflow,
                    request,
                    now,
                    reply,
                }],
            )]);
        }
    }

    fn release_permits(&self, permits: Vec<(String, LeaseRef)>) {
        self.release_later(permits);
    }

    fn refund(&self, charged: ChargedUnits) {
        self.refund(charged, 1);
    }
}

/// The task of an actor. It may be dropped with its runtime while requests still arrive.
#[derive(Debug)]
struct ActorTask {
    engine: Engine,
    partition: Partition,
    finished: bool,
}

impl ActorTask {
    /// Serves all queued requests.
    async fn run(mut self) {
        let releaser: SharedLeaseReleaser = Arc::new(self.engine.clone());
        let Core {
            context,
            state_cache,
            ..
        } = &*self.engine.core;
        self.actor()
            .run(context, self.engine.store(), state_cache, &releaser)
            .await;
        self.finished = true;
    }

    fn actor(&self) -> &PartitionActor {
        &self.engine.core.actors[usize::from(self.partition.0)]
    }
}

impl Drop for ActorTask {
    fn drop(&mut self) {
        if !self.finished {
            self.actor().on_task_lost();
        }
    }
}
