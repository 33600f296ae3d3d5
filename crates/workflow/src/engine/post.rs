//! How requests reach the desk of their partition, and the task that serves it.

use std::sync::Arc;

use hashbrown::HashMap;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Engine;
use super::desk::Desk;
use super::desk::answer::Answer;
use super::desk::request::{Posted, Request};
use super::desk::undelivered::GiveBack;
use super::error::EngineError;
use crate::id::{Partition, WorkflowId};
use crate::record::lease::LeaseRef;
use crate::time::Timestamp;

impl Engine {
    /// Sends one request to the desk of its workflow and waits for the answer.
    pub(crate) async fn ask(&self, id: WorkflowId, request: Request, now: Timestamp) -> Result<Answer, EngineError> {
        let mut answers = self.ask_all(vec![(id, request)], now).await;
        answers.pop().expect("one answer for one request")
    }

    /// Sends many requests at the same time. The answers are in the same order.
    pub(crate) async fn ask_all(
        &self,
        requests: Vec<(WorkflowId, Request)>,
        now: Timestamp,
    ) -> Vec<Result<Answer, EngineError>> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut posts: HashMap<Partition, Vec<Posted>> = HashMap::new();
        for (workflow, request) in requests {
            let (answer, receiver) = oneshot::channel();
            let posted = Posted { workflow, request, now, answer };
            posts.entry(workflow.partition()).or_default().push(posted);
            answers.push(receiver);
        }
        for (partition, posted) in posts {
            self.post(partition, posted);
        }
        let mut answered = Vec::with_capacity(answers.len());
        for answer in answers {
            answered.push(answer.await.unwrap_or(Err(EngineError::Closed)));
        }
        answered
    }

    pub(crate) fn post(&self, partition: Partition, posted: Vec<Posted>) {
        let Some(desk) = self.core.desks.get(usize::from(partition.0)) else {
            // The id names a partition that this store does not have.
            return posted.into_iter().for_each(|posted| {
                let workflow = posted.workflow;
                let _left = posted.answer.send(Err(EngineError::NoWorkflow { workflow }));
            });
        };
        match desk.post(posted) {
            Ok(false) => {}
            Ok(true) => {
                self.core.tasks.spawn(Turn { engine: self.clone(), partition, served: false }.serve());
            }
            Err((posted, error)) => posted.into_iter().for_each(|posted| {
                let _left = posted.answer.send(Err(error.clone()));
            }),
        }
    }

    /// Gives a job back without waiting. Without a runtime nothing can be written; then the lease ends later.
    fn give_back(&self, (lease, fence): (LeaseRef, u64), now: Timestamp) {
        if Handle::try_current().is_ok() {
            let LeaseRef { workflow, job, token } = lease;
            let request = Request::GiveBack { job, token, fence };
            let (answer, _nobody) = oneshot::channel();
            self.post(workflow.partition(), vec![Posted { workflow, request, now, answer }]);
        }
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
        let engine = self.engine.clone();
        let give_back: GiveBack = Arc::new(move |lease, now| engine.give_back(lease, now));
        self.desk().serve(&self.engine.core.context, &give_back).await;
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
