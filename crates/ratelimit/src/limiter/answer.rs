//! From the statuses of all descriptors to the answer.

use super::options::Options;
use super::plan::Slot;
use crate::response::{Code, LimitHeaders, Status};

/// A descriptor without limit.
pub(crate) const NO_LIMIT: Status = Status { code: Code::Ok, limit: None, remaining: 0, seconds_until_reset: None };

/// A descriptor whose limit is unlimited.
pub(crate) const UNLIMITED: Status =
    Status { code: Code::Ok, limit: None, remaining: u32::MAX, seconds_until_reset: None };

/// The overall code, before global shadow mode.
///
/// An ordinary descriptor that is over its limit refuses the request. Quotas refuse it only together: when there are
/// any, and all of them are over.
pub(crate) fn overall(slots: &[Slot<'_>], statuses: &[Status], options: &Options) -> Code {
    let (mut quotas, mut failed_quotas) = (0_usize, 0_usize);
    for (slot, status) in slots.iter().zip(statuses) {
        let over = status.code == Code::OverLimit;
        if is_quota(slot, options) {
            quotas += 1;
            failed_quotas += usize::from(over);
        } else if over {
            return Code::OverLimit;
        }
    }
    if quotas > 0 && quotas == failed_quotas { Code::OverLimit } else { Code::Ok }
}

/// The values of the response headers: those of the descriptor with the fewest hits left, or of the last one that
/// refuses the request.
pub(crate) fn headers(slots: &[Slot<'_>], statuses: &[Status], options: &Options) -> Option<LimitHeaders> {
    let mut chosen = None;
    let mut fewest = u32::MAX;
    for (slot, status) in slots.iter().zip(statuses) {
        let (Some(limit), Some(reset)) = (&status.limit, status.seconds_until_reset) else { continue };
        let refuses = status.code == Code::OverLimit && !is_quota(slot, options);
        if status.remaining < fewest || refuses {
            fewest = status.remaining;
            chosen = Some(LimitHeaders { limit: limit.requests_per_unit, remaining: status.remaining, reset });
        }
    }
    chosen
}

/// Whether a descriptor refuses a request only together with all other quotas. In global quota mode also a descriptor
/// without limit is a quota, one that never fails.
fn is_quota(slot: &Slot<'_>, options: &Options) -> bool {
    match slot {
        Slot::Unlimited(_) => false,
        Slot::NoLimit => options.global_quota_mode,
        Slot::Counted(counted) => options.global_quota_mode || counted.limit.is_some_and(|limit| limit.quota_mode),
    }
}
