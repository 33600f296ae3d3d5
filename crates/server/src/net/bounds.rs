//! Bounds on the connections, bytes and time that clients can make the server hold. docs/guarantees.md
//! lists every bound with its reason.

pub(crate) mod body;
mod budget;
mod conn_state;
mod connections;
mod counts;
mod open_files;
mod rate_watch;
mod resets;
pub(crate) mod socket;

use std::sync::Arc;

pub(crate) use budget::{ConnectionMemory, MemoryBudget};
pub(crate) use conn_state::{ConnActivity, ConnState};
pub(crate) use connections::{ClientNetwork, ConnectionSlot, ConnectionTable};
pub(crate) use counts::{CloseReason, PortSample};
pub(crate) use open_files::{ConnectionLimit, OpenFiles, PortLimits, raise_open_file_limit};
pub(crate) use rate_watch::RateRule;
pub(crate) use resets::ResetCounter;

/// The bounds of one port. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct PortBounds {
    pub(crate) table: Arc<ConnectionTable>,
    pub(crate) budget: Arc<MemoryBudget>,
}

impl PortBounds {
    /// Creates the bounds of the port with this name: at most `connections` connections, and
    /// `budget` for the bytes of unfinished requests and answers.
    pub(crate) fn new(
        port: &'static str,
        connections: ConnectionLimit,
        budget: impl Into<Arc<MemoryBudget>>,
    ) -> Self {
        Self {
            table: Arc::new(ConnectionTable::new(port, connections)),
            budget: budget.into(),
        }
    }

    /// Counts since the start.
    pub(crate) fn sample(&self) -> PortSample {
        self.table.sample(self.budget.refused())
    }
}
