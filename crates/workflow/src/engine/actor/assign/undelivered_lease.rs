//! A lease that has not reached its worker yet.

use std::fmt;
use std::sync::Arc;

use crate::engine::limits::unstarted::ChargedUnits;
use crate::model::{LeaseRef, Timestamp};

/// Releases what workers do not have, or no longer have. The methods do not block.
pub(crate) trait LeaseReleaser: Send + Sync {
    /// Returns the job of a lease with this number to its queue.
    fn release_lease(&self, lease: LeaseRef, fence: u64, now: Timestamp);

    /// Releases the permits of leases in sets of limits.
    fn release_permits(&self, permits: Vec<(String, LeaseRef)>);

    /// Refunds the units that one job was charged under rate limits.
    fn refund(&self, charged: ChargedUnits);
}

/// A shared [`LeaseReleaser`].
pub(crate) type SharedLeaseReleaser = Arc<dyn LeaseReleaser>;

/// Returns a job to its queue if this is dropped before the worker has the job. The job is ready at
/// once, and no lost lease is counted.
pub(crate) struct UndeliveredLease {
    releaser: Option<SharedLeaseReleaser>,
    lease: LeaseRef,
    fence: u64,
    now: Timestamp,
    /// Units that the job was charged under rate limits.
    charged: Option<ChargedUnits>,
}

impl UndeliveredLease {
    pub(crate) fn new(
        releaser: &SharedLeaseReleaser,
        lease: LeaseRef,
        fence: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            releaser: Some(Arc::clone(releaser)),
            lease,
            fence,
            now,
            charged: None,
        }
    }

    /// Adds units of rate limits, which are refunded if the job is returned.
    pub(crate) fn with_charge(&mut self, charged: ChargedUnits) {
        if self.releaser.is_some() {
            self.charged = Some(charged);
        }
    }

    /// Must be called when the worker has the job, or when the lease was never written. Returns the
    /// charged units.
    pub(crate) fn mark_delivered(&mut self) -> Option<ChargedUnits> {
        self.releaser = None;
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
        if let Some(releaser) = self.releaser.take() {
            releaser.release_lease(self.lease, self.fence, self.now);
            self.charged
                .take()
                .into_iter()
                .for_each(|charged| releaser.refund(charged));
        }
    }
}
