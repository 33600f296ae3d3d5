//! Why the engine did not do as asked.

use thiserror::Error;

use crate::id::WorkflowId;
use crate::store::error::StoreError;
use crate::transition::refusal::Refusal;

/// Why the engine did not do as asked.
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
        /// What was asked for.
        job: String,
    },
    /// The state does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another workflow was created with the same idempotency key.
    #[error("idempotency key '{key}' was used for another definition, workflow {workflow}: use another key")]
    KeyMismatch {
        /// The key.
        key: String,
        /// The workflow that has it.
        workflow: WorkflowId,
    },
    /// The store did not do as asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too much waits for the store already.
    #[error("too many requests wait for the store: try again later")]
    Overloaded,
    /// Others changed the workflow again and again at the same moment.
    #[error("workflow {workflow} is changed by others all the time: try again")]
    Contended {
        /// Its id.
        workflow: WorkflowId,
    },
    /// The engine is closing.
    #[error("the server is shutting down")]
    Closed,
}
