//! Units of rate limits: whoever counts them is elsewhere.

use std::any::Any;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::graph::limits::Limits;

/// What is answered later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Counts the units of rate limits. Calls are bounded in time by whoever answers them.
pub trait Units: Send + Sync + Debug {
    /// Takes the units that jobs need, for as many of them as there is room, in this order: one answer for each item. Limits that are no rate
    /// limits are not its business.
    fn acquire(&self, wanted: Vec<UnitRequest>) -> Later<'_, Vec<UnitGrant>>;

    /// Closes the rate limits among these for jobs, at all servers and for so long. If that fails, they stay as they are.
    fn throttle(&self, limits: Arc<Limits>, pause: Duration) -> Later<'_, ()>;

    /// Gives the units of so many jobs back to the windows that they were taken from. If that fails, they are lost.
    fn give_back(&self, receipt: Receipt, jobs: u32) -> Later<'_, ()>;
}

/// Jobs that have the same limits.
#[derive(Debug, Clone)]
pub struct UnitRequest {
    /// Their limits.
    pub limits: Arc<Limits>,
    /// How many they are. For none nothing is taken, and the answer says whether there is room for one.
    pub jobs: u32,
}

/// From where units were taken, as whoever counts them knows it.
pub type Receipt = Arc<dyn Any + Send + Sync>;

/// The answer to a [`UnitRequest`].
#[derive(Debug, Clone)]
pub struct UnitGrant {
    /// For how many jobs units were taken.
    pub jobs: u32,
    /// What they can be given back with. None: nothing was counted.
    pub receipt: Option<Receipt>,
    /// There is no room for another job.
    pub no_room: Option<LimitExhausted>,
}

/// A limit that has no room for another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitExhausted {
    /// Its place among the limits.
    pub limit: usize,
    /// After this time it has room, if nothing changes before.
    pub after: Duration,
    /// After this time it is of use to ask again, if that is known.
    pub again: Option<Duration>,
}
