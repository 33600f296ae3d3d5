//! Computes what an acquisition adds to the statistics of a limit.

use super::plan::BlockReason;
use crate::limiter::{Code, CountedLimit, CounterReading, LimitDelta, split_hits};

/// Result of jobs at one limit.
#[derive(Debug, Clone, Copy)]
pub(super) enum JobEvent {
    /// The store failed. The hits count as requested.
    Failed,
    /// Another limit refused the jobs before.
    NotRequested,
    /// The limit was known to have no room for this number of jobs.
    Blocked { reason: BlockReason, jobs: u32 },
    /// The counter held `before`, `charged` jobs were charged to it, and it had no room for `over`
    /// others.
    Counted {
        before: u64,
        charged: u32,
        over: u32,
    },
}

/// Completes the delta of a limit. Returns whether the limit was over.
pub(super) fn complete(
    delta: &mut LimitDelta,
    counted: &CountedLimit<'_>,
    event: JobEvent,
    near_limit_ratio: f32,
) -> Code {
    let hits_of = |jobs: u32| counted.hits.saturating_mul(jobs.into());
    let over = match event {
        JobEvent::Failed => None,
        JobEvent::NotRequested => {
            delta.total_hits = 0;
            None
        }
        JobEvent::Blocked { reason, jobs } => {
            delta.total_hits = hits_of(jobs);
            if reason != BlockReason::Never {
                delta.over_limit_with_local_cache = delta.total_hits;
            }
            Some(delta.total_hits)
        }
        JobEvent::Counted {
            before,
            charged,
            over,
        } => {
            let charged = hits_of(charged);
            let refused = hits_of(over);
            delta.total_hits = charged.saturating_add(refused);
            let reading = CounterReading {
                before,
                after: before.saturating_add(charged),
            };
            let counted_over = split_hits(
                delta,
                counted.requests_per_unit.into(),
                charged,
                reading,
                near_limit_ratio,
            );
            match (counted_over, refused) {
                (None, 0) => None,
                (counted_over, refused) => Some(counted_over.unwrap_or(0).saturating_add(refused)),
            }
        }
    };
    delta.over_limit = over.unwrap_or(0);
    let shadow_mode = counted.limit.is_some_and(|limit| limit.shadow_mode);
    if shadow_mode {
        delta.shadow_mode = delta.over_limit;
    }
    if over.is_some() && !shadow_mode {
        Code::OverLimit
    } else {
        Code::Ok
    }
}
