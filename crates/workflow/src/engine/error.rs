//! Why a call of the engine failed.

use thiserror::Error;

use crate::graph::error::GraphError;
use crate::id::WorkflowId;
use crate::store::error::StoreError;
use crate::transition::refusal::Refusal;

/// Why a call of the engine failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// There is no such workflow.
    #[error("there is no workflow {workflow}: it never was, or its retention ended")]
    NoWorkflow {
        /// Its id.
        workflow: WorkflowId,
    },
    /// The workflow has no such job.
    #[error("workflow {workflow} has no job '{job}'")]
    NoJob {
        /// Its id.
        workflow: WorkflowId,
        /// The name of the job.
        job: String,
    },
    /// The state does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another workflow was created with the same idempotency key.
    #[error(
        "idempotency key '{key}' was used for another definition, workflow {workflow}: use another key"
    )]
    KeyMismatch {
        /// The key.
        key: String,
        /// The workflow that has it.
        workflow: WorkflowId,
    },
    /// Limits or weights of a queue or a handler are wrong.
    #[error(transparent)]
    Terms(#[from] GraphError),
    /// Too many queues and handlers have limits or weights.
    #[error(
        "more than {most} queues and handlers have limits or weights, or these have more than {bytes} bytes: name limits in jobs"
    )]
    TooManyTerms {
        /// How many may have some.
        most: usize,
        /// How many bytes all of these may have.
        bytes: usize,
    },
    /// A count for which each workflow must be read matches too many.
    #[error(
        "more than {most} workflows have this tag, which are read one by one: count those of a shorter time"
    )]
    TooManyToCount {
        /// How many are read at most.
        most: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many requests wait for the store.
    #[error("too many requests wait for the store: try again later")]
    Overloaded,
    /// Other servers changed the workflow at the same time again and again.
    #[error("workflow {workflow} is changed by others all the time: try again")]
    Contended {
        /// Its id.
        workflow: WorkflowId,
    },
    /// The engine is closing.
    #[error("the server is shutting down")]
    Closed,
}
