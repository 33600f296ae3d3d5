//! A lease that has not reached its worker yet.

use std::fmt;
use std::sync::Arc;

use crate::record::lease::LeaseRef;
use crate::time::Timestamp;

/// Gives the job of a lease with this number back, at the given time.
pub(crate) type GiveBack = Arc<dyn Fn((LeaseRef, u64), Timestamp) + Send + Sync>;

/// Gives a job back when this is dropped before the worker has the job. The job is ready at once, and no lost lease is counted.
pub(crate) struct Undelivered {
    give_back: Option<GiveBack>,
    lease: LeaseRef,
    fence: u64,
    now: Timestamp,
}

impl Undelivered {
    pub(super) fn new(give_back: &GiveBack, (lease, fence): (LeaseRef, u64), now: Timestamp) -> Self {
        Self { give_back: Some(Arc::clone(give_back)), lease, fence, now }
    }

    /// To be called when the worker has the job, or the lease was never written.
    pub(crate) fn settle(&mut self) {
        self.give_back = None;
    }
}

impl fmt::Debug for Undelivered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Undelivered").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back((self.lease, self.fence), self.now);
        }
    }
}
