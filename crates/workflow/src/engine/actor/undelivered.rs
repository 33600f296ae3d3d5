//! A lease that has not reached its worker yet.

use std::fmt;
use std::sync::Arc;

use crate::codec::lease::LeaseRef;
use crate::engine::limits::unbegun::Charged;
use crate::time::Timestamp;

/// Who takes back what workers do not have, or have no more. Without waiting.
pub(crate) trait LeaseReleaser: Send + Sync {
    /// Gives the job of a lease with this number back.
    fn give_back(&self, lease: LeaseRef, fence: u64, now: Timestamp);

    /// Frees the places of leases in sets of limits.
    fn release_permits(&self, places: Vec<(String, LeaseRef)>);

    /// Gives back what was taken for one job under rate limits.
    fn refund(&self, charged: Charged);
}

/// See [`LeaseReleaser`].
pub(crate) type GiveBack = Arc<dyn LeaseReleaser>;

/// Gives a job back when this is dropped before the worker has the job. The job is ready at once, and no lost lease is counted.
pub(crate) struct UndeliveredLease {
    give_back: Option<GiveBack>,
    lease: LeaseRef,
    fence: u64,
    now: Timestamp,
    /// The units that were taken for the job under rate limits.
    charged: Option<Charged>,
}

impl UndeliveredLease {
    pub(super) fn new(give_back: &GiveBack, lease: LeaseRef, fence: u64, now: Timestamp) -> Self {
        Self {
            give_back: Some(Arc::clone(give_back)),
            lease,
            fence,
            now,
            charged: None,
        }
    }

    /// What was taken under rate limits is given back with the job.
    pub(crate) fn with_charge(&mut self, charged: Charged) {
        if self.give_back.is_some() {
            self.charged = Some(charged);
        }
    }

    /// To be called when the worker has the job, or the lease was never written. Returns what was taken for it.
    pub(crate) fn mark_delivered(&mut self) -> Option<Charged> {
        self.give_back = None;
        self.charged.take()
    }
}

impl fmt::Debug for UndeliveredLease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Undelivered")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Drop for UndeliveredLease {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back.give_back(self.lease, self.fence, self.now);
            self.charged
                .take()
                .into_iter()
                .for_each(|charged| give_back.refund(charged));
        }
    }
}
