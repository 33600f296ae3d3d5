//! What was taken under rate limits for jobs that workers have and may not have begun.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use super::units::Receipt;
use crate::engine::Engine;
use crate::engine::claim::report::Reported;
use crate::engine::error::EngineError;
use crate::graph::limits::Limits;
use crate::record::lease::LeaseRef;
use crate::state::LeaseEnd;
use crate::time::Timestamp;
use crate::transition::refusal::Refusal;

/// Most leases of which it is remembered what was taken, about 100 bytes each. What was taken for others stays spent.
const MOST: usize = 65_536;
/// How often it is looked for those that can be forgotten when there are too many.
const APART: Duration = Duration::from_secs(1);

/// What was taken under rate limits for one job.
#[derive(Debug, Clone)]
pub(crate) struct Charged {
    pub(crate) limits: Arc<Limits>,
    pub(crate) receipt: Receipt,
}

/// What was taken for the jobs that workers of this server have.
#[derive(Debug, Default)]
pub(in crate::engine) struct Unbegun {
    /// Of `known`, so that reports of jobs without limits take no lock.
    number: AtomicUsize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// With the time at which the lease ends, unless it is extended.
    each: HashMap<LeaseRef, (Charged, Timestamp)>,
    looked: Timestamp,
}

impl Unbegun {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what was taken for a job that a worker gets now.
    pub(in crate::engine) fn keep(&self, lease: LeaseRef, charged: Charged, expires: Timestamp, now: Timestamp) {
        let known = &mut *self.known();
        if known.each.len() >= MOST && now.since(known.looked) >= APART {
            known.looked = now;
            known.each.retain(|_, (_, expires)| *expires > now);
        }
        if known.each.len() < MOST {
            known.each.insert(lease, (charged, expires));
        }
        self.number.store(known.each.len(), Relaxed);
    }

    /// What was taken for the job of a lease, once.
    fn take(&self, lease: LeaseRef) -> Option<Charged> {
        if self.number.load(Relaxed) == 0 {
            return None;
        }
        let known = &mut *self.known();
        let (charged, _) = known.each.remove(&lease)?;
        self.number.store(known.each.len(), Relaxed);
        Some(charged)
    }
}

impl Engine {
    /// A lease was reported. If the job was not begun, what was taken for it is given back, once, also when the lease was lost before: the job was
    /// cancelled, or the worker is late.
    pub(in crate::engine) fn settle_charge(
        &self,
        lease: LeaseRef,
        not_begun: bool,
        reported: Result<&Reported, &EngineError>,
    ) {
        // The worker reports again.
        if matches!(reported, Err(EngineError::Store(_))) {
            return;
        }
        if let Some(charged) = self.core.unbegun.take(lease)
            && not_begun
            && ended_without_report(reported)
        {
            self.refund(charged, 1);
        }
    }
}

/// Whether no earlier report of the lease was accepted, at another server or with an answer that was lost: one that says how the attempt ended
/// says that it began. In doubt, what was taken stays spent.
fn ended_without_report(reported: Result<&Reported, &EngineError>) -> bool {
    match reported {
        Ok(reported) => !reported.already,
        Err(EngineError::Refused(Refusal::LeaseLost { reason, .. })) => {
            LeaseEnd::ALL.iter().any(|end| end.word() == *reason)
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{JobIndex, Partition, WorkflowId};

    #[test]
    fn what_is_remembered_is_bounded_and_told_once() {
        let unbegun = Unbegun::default();
        let now = Timestamp::from_micros(1_795_000_000_000_000);
        let lease = |token| LeaseRef { workflow: WorkflowId::new(now, Partition(0), 1), job: JobIndex(0), token };
        let limits: Arc<Limits> = Limits::read(r#"[["vendor",1,"tenant","acme"]]"#).unwrap().into();
        let charged = || Charged { limits: Arc::clone(&limits), receipt: Arc::new(()) };
        for token in 0..MOST as u64 + 1 {
            unbegun.keep(lease(token), charged(), now + APART, now);
        }
        assert!(unbegun.take(lease(MOST as u64)).is_none(), "there was no room");
        assert!(unbegun.take(lease(0)).is_some() && unbegun.take(lease(0)).is_none());
        unbegun.keep(lease(0), charged(), now + APART, now);
        unbegun.keep(lease(7), charged(), now + APART * 3, now + APART * 2);
        assert!(unbegun.take(lease(7)).is_some(), "leases that have ended made room");
        assert_eq!(unbegun.number.load(Relaxed), 0);
    }
}
