//! Joins the statuses of all descriptors to the answer of the request.

use crate::limiter::{AppliedLimit, Code, LimitHeaders, Options, Status};

/// The status of a descriptor that has no limit.
pub(crate) const NO_LIMIT: Status = Status {
    code: Code::Ok,
    limit: None,
    remaining: 0,
    seconds_until_reset: None,
};

/// The status of a descriptor whose limit is unlimited.
pub(crate) const UNLIMITED: Status = Status {
    code: Code::Ok,
    limit: None,
    remaining: u32::MAX,
    seconds_until_reset: None,
};

/// The status of a descriptor that is paused and has no limit.
pub(crate) const PAUSED: Status = Status {
    code: Code::OverLimit,
    limit: None,
    remaining: 0,
    seconds_until_reset: None,
};

/// Returns the overall code, before global shadow mode.
///
/// An ordinary descriptor that is over its limit refuses the request. Quotas refuse it when all of
/// them are over their limit.
pub(crate) fn overall(limits: &[AppliedLimit<'_>], statuses: &[Status], options: &Options) -> Code {
    let mut quotas = 0_usize;
    let mut quotas_over = 0_usize;
    for (limit, status) in limits.iter().zip(statuses) {
        let over = status.code == Code::OverLimit;
        if is_quota(limit, options) {
            quotas += 1;
            quotas_over += usize::from(over);
        } else if over {
            return Code::OverLimit;
        }
    }
    if quotas > 0 && quotas == quotas_over {
        Code::OverLimit
    } else {
        Code::Ok
    }
}

/// Returns the values of the response headers: those of the descriptor with the fewest hits left,
/// or of the last descriptor that refuses the request.
pub(crate) fn headers(
    limits: &[AppliedLimit<'_>],
    statuses: &[Status],
    options: &Options,
) -> Option<LimitHeaders> {
    let mut chosen = None;
    let mut fewest = u32::MAX;
    for (applied, status) in limits.iter().zip(statuses) {
        let (Some(limit), Some(reset)) = (&status.limit, status.seconds_until_reset) else {
            continue;
        };
        let refuses = status.code == Code::OverLimit && !is_quota(applied, options);
        if status.remaining < fewest || refuses {
            fewest = status.remaining;
            chosen = Some(LimitHeaders {
                limit: limit.requests_per_unit,
                remaining: status.remaining,
                reset,
            });
        }
    }
    chosen
}

/// Returns whether a descriptor counts as a quota. In global quota mode a descriptor without limit
/// is a quota, too, and is never over.
pub(crate) fn is_quota(limit: &AppliedLimit<'_>, options: &Options) -> bool {
    match limit {
        AppliedLimit::Unlimited(_) => false,
        AppliedLimit::None | AppliedLimit::Paused(_) => options.global_quota_mode,
        AppliedLimit::Counted(counted) => {
            options.global_quota_mode || counted.limit.is_some_and(|limit| limit.quota_mode)
        }
    }
}
