//! Repairs of single workflows, for whoever has compared the store with their states.

use hashbrown::HashMap;

use crate::codec::change::Delete;
use crate::engine::Engine;
use crate::engine::actor::request::Request;
use crate::engine::error::EngineError;
use crate::id::WorkflowId;
use crate::time::Timestamp;

impl Engine {
    /// Writes all rows of a workflow again. The rows in `strays` are removed unless they follow
    /// from its state. Of a workflow that is not there, they are removed, with its timer and its
    /// expiry. Other servers may be at work: what they write meanwhile counts.
    ///
    /// # Errors
    /// The state cannot be read, or the store failed.
    ///
    /// # Cancellation
    /// When the future is dropped, it may take place all the same.
    pub async fn repair(
        &self,
        workflow: WorkflowId,
        strays: Delete,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if let Some(desk) = self.core.desks.get(usize::from(workflow.partition().0)) {
            desk.torn.note_rows(workflow, &strays.ready, &strays.index);
        }
        match self.request(workflow, Request::Mend, now).await {
            Err(EngineError::NoWorkflow { .. }) => {
                self.remove_left(HashMap::from([(workflow, strays)])).await;
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    /// Writes the idempotency key of a workflow again. When another workflow has it now, that stays
    /// so.
    ///
    /// # Errors
    /// As [`Engine::repair`].
    ///
    /// # Cancellation
    /// As [`Engine::repair`].
    pub async fn repair_key(
        &self,
        workflow: WorkflowId,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        self.request(workflow, Request::MendKey, now)
            .await
            .map(drop)
    }
}
