//! Bounds on the connections, bytes and time that clients can make the server hold. docs/limits.md
//! lists every bound with its reason.

pub(crate) mod body;
mod budget;
mod conn_state;
mod connections;
mod counts;
mod descriptors;
mod rate_watch;
mod resets;
pub(crate) mod socket;

use std::sync::Arc;

pub(crate) use budget::{Budget, ConnectionMemory};
pub(crate) use conn_state::{ConnActivity, ConnState};
pub(crate) use connections::{ClientNetwork, ConnectionSlot, ConnectionTable};
pub(crate) use counts::{Closed, PortSample};
pub(crate) use descriptors::{Files, Most, Shares, raise};
pub(crate) use rate_watch::RateRule;
pub(crate) use resets::Resets;

/// The bounds of one port. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) places: Arc<ConnectionTable>,
    pub(crate) budget: Arc<Budget>,
}

impl Bounds {
    /// Creates the bounds of the port with this name: at most `connections` connections, and
    /// `budget` for the bytes of unfinished requests and answers.
    pub(crate) fn new(
        port: &'static str,
        connections: Most,
        budget: impl Into<Arc<Budget>>,
    ) -> Self {
        Self {
            places: Arc::new(ConnectionTable::new(port, connections)),
            budget: budget.into(),
        }
    }

    /// Counts since the start.
    pub(crate) fn sample(&self) -> PortSample {
        self.places.sample(self.budget.refused())
    }
}
