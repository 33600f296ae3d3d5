//! Repairs of single workflows, for a check that compares rows with states.

use hashbrown::HashMap;

use crate::codec::change::Delete;
use crate::engine::Engine;
use crate::engine::actor::request::Request;
use crate::engine::context::error::EngineError;
use crate::model::id::WorkflowId;
use crate::model::time::Timestamp;

impl Engine {
    /// Writes all rows of a workflow again. The rows in `orphan_rows` are removed unless they
    /// follow from the state. If the workflow does not exist, they are removed with its timer and
    /// expiry. Other servers may work at the same time: their writes are kept.
    ///
    /// # Errors
    /// The state cannot be read, or the store failed.
    ///
    /// # Cancellation
    /// The repair may still be applied when the future is dropped.
    pub async fn repair(
        &self,
        workflow: WorkflowId,
        orphan_rows: Delete,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if let Some(actor) = self.core.actors.get(usize::from(workflow.partition().0)) {
            actor
                .partial_writes
                .record_rows(workflow, &orphan_rows.ready, &orphan_rows.index);
        }
        match self.request(workflow, Request::RepairRows, now).await {
            Err(EngineError::NoWorkflow { .. }) => {
                self.remove_remains(HashMap::from([(workflow, orphan_rows)]))
                    .await;
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    /// Writes the idempotency key of a workflow again, unless another workflow has it now.
    ///
    /// # Errors
    /// The errors of [`Engine::repair`].
    ///
    /// # Cancellation
    /// The repair may still be applied when the future is dropped.
    pub async fn repair_key(
        &self,
        workflow: WorkflowId,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        self.request(workflow, Request::RestoreKey, now)
            .await
            .map(drop)
    }
}
