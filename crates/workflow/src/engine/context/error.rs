//! Errors of calls of the engine.

use thiserror::Error;

use crate::codec::StoreError;
use crate::graph::GraphError;
use crate::machine::Refusal;
use crate::model::WorkflowId;

/// Error of a call of the engine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// There is no such workflow.
    #[error("there is no workflow {workflow}: it never was, or its retention ended")]
    NoWorkflow {
        /// Id of the workflow.
        workflow: WorkflowId,
    },
    /// The workflow has no such job.
    #[error("workflow {workflow} has no job '{job}'")]
    NoJob {
        /// Id of the workflow.
        workflow: WorkflowId,
        /// Name of the job.
        job: String,
    },
    /// The state of the workflow or the job does not allow the call.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another workflow was created with the same idempotency key.
    #[error(
        "idempotency key '{key}' was used for another definition, workflow {workflow}: use another key"
    )]
    KeyMismatch {
        /// The key.
        key: String,
        /// The workflow that has the key.
        workflow: WorkflowId,
    },
    /// Limits or weights of a queue or a handler are wrong.
    #[error(transparent)]
    InvalidPolicies(#[from] GraphError),
    /// Too many queues and handlers have limits or weights.
    #[error(
        "more than {most} queues and handlers have limits or weights, or these have more than {bytes} bytes: name limits in jobs"
    )]
    TooManyPolicies {
        /// Most queues and handlers that may have some.
        most: usize,
        /// Most bytes of all of them.
        bytes: usize,
    },
    /// The count must read each workflow, and too many match.
    #[error(
        "more than {most} workflows have this tag, which are read one by one: count those of a shorter time"
    )]
    TooManyToCount {
        /// Most workflows that are read.
        most: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many requests wait for the store.
    #[error("too many requests wait for the store: try again later")]
    Overloaded,
    /// Other servers changed the workflow during all attempts.
    #[error("workflow {workflow} is changed by others all the time: try again")]
    Contended {
        /// Id of the workflow.
        workflow: WorkflowId,
    },
    /// The engine is closing.
    #[error("the server is shutting down")]
    Closed,
}
