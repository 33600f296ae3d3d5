//! The interface to the rate limiter, which counts units outside of this crate.

use std::any::Any;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::graph::Limits;

/// A boxed future of an answer.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Counts the units of rate limits. The implementation bounds the time of calls.
pub trait UnitCounter: Send + Sync + Debug {
    /// Acquires units for as many of the jobs as have room, in this order. Returns one answer for
    /// each item. Concurrency limits are ignored.
    fn acquire(&self, requests: Vec<UnitRequest>) -> BoxFuture<'_, Vec<UnitGrant>>;

    /// Blocks the rate limits among `limits` for jobs, at all servers and for `pause`. If that
    /// fails, they stay as they are.
    fn throttle(&self, limits: Arc<Limits>, pause: Duration) -> BoxFuture<'_, ()>;

    /// Refunds the units of `jobs` jobs to the windows from which they were acquired. If that
    /// fails, the units are lost.
    fn refund(&self, receipt: Receipt, jobs: u32) -> BoxFuture<'_, ()>;
}

/// A request of units for jobs with equal limits.
#[derive(Debug, Clone)]
pub struct UnitRequest {
    /// Their limits.
    pub limits: Arc<Limits>,
    /// Number of jobs. With 0 nothing is acquired, and the answer says whether there is room for
    /// one job.
    pub jobs: u32,
}

/// The windows from which units were acquired, in a form of the implementation.
pub type Receipt = Arc<dyn Any + Send + Sync>;

/// The answer to a [`UnitRequest`].
#[derive(Debug, Clone)]
pub struct UnitGrant {
    /// Number of jobs for which units were acquired.
    pub jobs: u32,
    /// The receipt for a refund. `None` if no units were counted.
    pub receipt: Option<Receipt>,
    /// The limit that denies another job.
    pub exhausted: Option<LimitExhausted>,
}

/// A limit that denies another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitExhausted {
    /// The index of the limit among the limits of the job.
    pub limit_index: usize,
    /// Time after which the limit has room if nothing changes before.
    pub available_after: Duration,
    /// Time after which a retry is useful, if it is known.
    pub retry_after: Option<Duration>,
}
