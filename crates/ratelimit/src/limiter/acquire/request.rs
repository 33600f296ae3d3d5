//! Requests of units for jobs, and the answers.

use std::num::NonZeroU32;
use std::time::Duration;

use super::permits::Permits;
use crate::limiter::{Facts, Key};
use crate::model::Entry;
use crate::store::StoreError;

/// Units of one limit that a job needs.
#[derive(Debug, Clone, Copy)]
pub struct Units<'a> {
    /// The domain of the configuration to look in.
    pub domain: &'a str,
    /// The path to look up, outermost first.
    pub entries: &'a [Entry],
    /// Hits that one job costs.
    pub hits: NonZeroU32,
}

impl<'a> Units<'a> {
    pub(super) fn key(&self) -> Key<'a> {
        Key {
            domain: self.domain,
            entries: self.entries,
        }
    }
}

/// Jobs that have the same limits. A job runs if all of these limits have room for it, and is
/// charged to all of them.
#[derive(Debug, Clone, Copy)]
pub struct AcquireRequest<'a> {
    /// The limits.
    pub limits: &'a [Units<'a>],
    /// Number of such jobs. With 0 nothing is charged, and the answer says whether one could run.
    pub times: u32,
}

/// The number of jobs that may run, and whether another request can succeed now.
#[derive(Debug)]
pub struct Acquired {
    /// The units of the jobs that may run.
    pub permits: Permits,
    /// Number of further jobs that may run now, according to the counters.
    pub remaining: Remaining,
    /// The limit that stops further jobs. `None` if one more may run. So it is present whenever
    /// fewer jobs may run than were requested.
    pub exhausted: Option<Exhausted>,
}

/// Number of further jobs that may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// No limit that counts applies to the jobs, or all that do are in shadow mode.
    Unlimited,
    /// This number of jobs, at least one if no limit is exhausted.
    Jobs(u64),
}

/// A limit that lets no further jobs run. Of several, the one that does so for longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    /// Index of the limit in [`AcquireRequest::limits`].
    pub limit: usize,
    /// The reason, and its end.
    pub reason: ExhaustedReason,
}

/// Reason why a limit lets no further jobs run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExhaustedReason {
    /// The window of the limit is used up.
    UsedUp {
        /// Time to the end of the window. An earlier request cannot succeed.
        after: Duration,
    },
    /// An override lets no job run: it pauses the limit, or scales it below what one job needs.
    Paused {
        /// Time to the end of the override. `None` if it has no end and must be removed by an
        /// operator. It may also be removed earlier.
        after: Option<Duration>,
    },
    /// One job needs more hits than the limit allows in a window. Only another configuration
    /// changes that.
    Never,
    /// The store failed for this limit. It is unknown whether it charged the hits; they are not
    /// refunded, so that no limit is exceeded.
    Failed(StoreError),
}

/// Facts of one call of `Limiter::acquire`, for the server's counters.
#[derive(Debug, Default)]
pub struct AcquireFacts {
    /// One delta for each limit of a job that counts. Hits over the limit are those of jobs that
    /// must wait.
    pub counted: Facts,
    /// Domains that are not configured, each with the number of job limits that name it.
    pub unknown_domains: Vec<(String, u64)>,
    /// Error of the refund of units that one limit granted and another one refused. These units are
    /// lost until their window ends.
    pub refund_error: Option<StoreError>,
}
