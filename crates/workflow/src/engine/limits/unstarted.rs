//! Units of rate limits that were charged for jobs which workers have received and may not have
//! begun.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use super::unit_counter::Receipt;
use crate::engine::Engine;
use crate::engine::claim::report::ReportAnswer;
use crate::engine::context::error::EngineError;
use crate::graph::{Limit, Limits};
use crate::machine::Refusal;
use crate::model::{LeaseEnd, LeaseRef, Timestamp};
use crate::queue::blocked_limits::limit_names::limit_name;

/// Maximum leases whose units are remembered, about 100 bytes each. Units of other leases are not
/// refunded.
const MAX_LEASES: usize = 65_536;
/// Minimum time between two searches for ended leases while the table is full.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

/// The units that were charged for one job.
#[derive(Debug, Clone)]
pub(crate) struct ChargedUnits {
    pub(crate) limits: Arc<Limits>,
    pub(crate) receipt: Receipt,
}

/// The units that were charged for the jobs of this server's workers.
#[derive(Debug, Default)]
pub(in crate::engine) struct UnstartedCharges {
    /// The length of `by_lease`: reports of jobs without limits read it and take no lock.
    number: AtomicUsize,
    charges: Mutex<ChargesByLease>,
}

#[derive(Debug, Default)]
struct ChargesByLease {
    /// The units of each lease, and the time at which the lease ends unless it is extended.
    by_lease: HashMap<LeaseRef, (ChargedUnits, Timestamp)>,
    purged_at: Timestamp,
}

impl UnstartedCharges {
    fn lock(&self) -> MutexGuard<'_, ChargesByLease> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the units of a job that a worker receives now.
    pub(crate) fn insert(
        &self,
        lease: LeaseRef,
        charged: ChargedUnits,
        expires: Timestamp,
        now: Timestamp,
    ) {
        let charges = &mut *self.lock();
        if charges.by_lease.len() >= MAX_LEASES && now.since(charges.purged_at) >= PURGE_INTERVAL {
            charges.purged_at = now;
            charges.by_lease.retain(|_, (_, expires)| *expires > now);
        }
        if charges.by_lease.len() < MAX_LEASES {
            charges.by_lease.insert(lease, (charged, expires));
        }
        self.number.store(charges.by_lease.len(), Relaxed);
    }

    /// Removes and returns the units of a lease.
    fn remove(&self, lease: LeaseRef) -> Option<ChargedUnits> {
        if self.number.load(Relaxed) == 0 {
            return None;
        }
        let charges = &mut *self.lock();
        let (charged, _) = charges.by_lease.remove(&lease)?;
        self.number.store(charges.by_lease.len(), Relaxed);
        Some(charged)
    }
}

impl Engine {
    /// Forgets the units of a reported lease. They are refunded if the job was not begun. That
    /// holds also if the lease was lost before, because the job was cancelled or the worker is
    /// late.
    pub(in crate::engine) fn resolve_charge(
        &self,
        lease: LeaseRef,
        not_begun: bool,
        reported: Result<&ReportAnswer, &EngineError>,
    ) {
        // The worker will report again.
        if matches!(reported, Err(EngineError::Store(_))) {
            return;
        }
        if let Some(charged) = self.core.unstarted_charges.remove(lease)
            && not_begun
            && ended_without_report(reported)
        {
            self.refund(charged, 1);
        }
    }
}

/// Whether no earlier report of the lease was accepted. Such a report, at another server or with a
/// lost answer, means that the attempt began. In doubt, units are not refunded.
fn ended_without_report(reported: Result<&ReportAnswer, &EngineError>) -> bool {
    match reported {
        Ok(reported) => !reported.already,
        Err(EngineError::Refused(Refusal::LeaseLost { reason, .. })) => {
            LeaseEnd::ALL.iter().any(|end| end.word() == *reason)
        }
        Err(_) => false,
    }
}

impl Engine {
    /// Refunds units in the background, and unblocks their limits then.
    pub(in crate::engine) fn refund(
        &self,
        ChargedUnits { limits, receipt }: ChargedUnits,
        jobs: u32,
    ) {
        if jobs == 0 {
            return;
        }
        let task = self.clone();
        self.spawn(async move {
            if let Some(counter) = task.unit_counter() {
                counter.refund(receipt, jobs).await;
                let counted = limits
                    .as_slice()
                    .iter()
                    .filter(|limit| matches!(limit, Limit::Units { .. }));
                counted.for_each(|limit| task.queues().unblock(&limit_name(limit)));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{JobIndex, Partition, WorkflowId};

    #[test]
    fn what_is_remembered_is_bounded_and_told_once() {
        let unbegun = UnstartedCharges::default();
        let now = Timestamp::from_micros(1_795_000_000_000_000);
        let lease = |token| LeaseRef {
            workflow: WorkflowId::new(now, Partition(0), 1),
            job: JobIndex(0),
            token,
        };
        let limits: Arc<Limits> = Limits::parse(r#"[["vendor",1,"tenant","acme"]]"#)
            .unwrap()
            .into();
        let charged = || ChargedUnits {
            limits: Arc::clone(&limits),
            receipt: Arc::new(()),
        };
        for token in 0..MAX_LEASES as u64 + 1 {
            unbegun.insert(lease(token), charged(), now + PURGE_INTERVAL, now);
        }
        assert!(
            unbegun.remove(lease(MAX_LEASES as u64)).is_none(),
            "there was no room"
        );
        assert!(unbegun.remove(lease(0)).is_some() && unbegun.remove(lease(0)).is_none());
        unbegun.insert(lease(0), charged(), now + PURGE_INTERVAL, now);
        unbegun.insert(
            lease(7),
            charged(),
            now + PURGE_INTERVAL * 3,
            now + PURGE_INTERVAL * 2,
        );
        assert!(
            unbegun.remove(lease(7)).is_some(),
            "leases that have ended made room"
        );
        assert_eq!(unbegun.number.load(Relaxed), 0);
    }
}
