//! A lease on its way to a worker that may have gone.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::group::Posted;
use super::play::Request;
use crate::engine::Engine;
use crate::engine::claim::LeaseRef;
use crate::time::Timestamp;
use crate::transition::Outcome;

/// Gives a job back when it is dropped before the worker has it: no lease has to end, and no loss is counted.
#[derive(Debug)]
pub(crate) struct Undelivered {
    engine: Option<Engine>,
    lease: LeaseRef,
    now: Timestamp,
}

impl Undelivered {
    pub(crate) fn new(engine: &Engine, lease: LeaseRef, now: Timestamp) -> Self {
        Self { engine: Some(engine.clone()), lease, now }
    }

    /// The worker has it, or the lease never was.
    pub(crate) fn settle(&mut self) {
        self.engine = None;
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        // Without a runtime nothing can be written: the lease ends in its time.
        if Handle::try_current().is_ok() {
            let LeaseRef { workflow, job, token } = self.lease;
            let outcome = Outcome::GivenBack { pause: Duration::ZERO };
            let request = Request::Report { job, token, outcome, hand_over: None };
            let (answer, _nobody) = oneshot::channel();
            engine.post(workflow.partition(), vec![Posted { workflow, request, now: self.now, answer }]);
        }
    }
}
