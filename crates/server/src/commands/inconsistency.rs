//! What the rows of one workflow and its state disagree about.

use tidegate_workflow::change::Delete;
use tidegate_workflow::rows::Row;
use tidegate_workflow::{RowSet, Snapshot};

use super::rows::row_text;

/// Mismatches of one workflow, compared while it did not change.
#[derive(Debug, Default)]
pub(super) struct Inconsistency {
    pub(super) messages: Vec<String>,
    /// Rows without a reason in the state of the workflow.
    pub(super) orphan_rows: Delete,
    /// Whether the idempotency key of the workflow does not lead to it.
    pub(super) wrong_key: bool,
}

impl Inconsistency {
    pub(super) fn add_wrong_key(&mut self) {
        let what = "its idempotency key does not lead to it";
        self.messages.push(what.to_owned());
        self.wrong_key = true;
    }

    pub(super) fn add_orphan(&mut self, set: RowSet, row: &Row, state: Option<&Snapshot>) {
        let why = match state {
            Some(_) => "",
            None => " of a workflow that is not there",
        };
        self.messages
            .push(format!("left over: {}{why}", row_text(set, row)));
        match set {
            RowSet::Ready => self.orphan_rows.ready.push(row.clone()),
            RowSet::Index => self.orphan_rows.index.push(row.clone()),
            // A workflow has at most one timer and one expiry, which the repair rewrites.
            RowSet::Due(_) => {}
        }
    }
}
