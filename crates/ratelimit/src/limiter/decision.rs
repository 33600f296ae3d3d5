//! The decision about one descriptor: its status, and what its hits add to the statistics of the
//! limit.

pub(super) mod answer;
pub(super) mod metadata;

use smallvec::SmallVec;

use super::{Code, CountedLimit, CurrentLimit, LimitDelta, Status};
use crate::model::Seconds;
use crate::store::CounterChange;

/// Count of a counter for one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// The counter is over its limit, or paused; the store was not called.
    KnownOver,
    /// The value of the counter after the hits.
    After(u64),
}

/// One count per counted limit of a request, in their order.
pub(super) type Counts = SmallVec<[Count; 4]>;

/// Returns the delta of hits before the decision. It takes over the limit's stats key.
pub(super) fn new_delta(counted: &mut CountedLimit<'_>) -> LimitDelta {
    let (total_hits, total_negative_hits) = match counted.change {
        CounterChange::Add => (counted.hits, 0),
        CounterChange::Refund => (0, counted.hits),
    };
    LimitDelta {
        stats_key: std::mem::take(&mut counted.stats_key),
        total_hits,
        over_limit: 0,
        near_limit: 0,
        within_limit: 0,
        over_limit_with_local_cache: 0,
        shadow_mode: 0,
        total_negative_hits,
    }
}

/// Decides one descriptor: returns its status, and completes a new delta with its hits.
pub(super) fn decide(
    counted: &CountedLimit<'_>,
    count: Count,
    near_limit_ratio: f32,
    now: Seconds,
    delta: &mut LimitDelta,
) -> Status {
    let over = hits_over(delta, counted, count, near_limit_ratio);
    let shadow_mode = counted.limit.is_some_and(|limit| limit.shadow_mode) && !counted.is_paused();
    if let Some(over) = over {
        delta.over_limit = over;
        if shadow_mode {
            delta.shadow_mode = over;
        }
    }
    let code = if over.is_some() && !shadow_mode {
        Code::OverLimit
    } else {
        Code::Ok
    };
    status(counted, code, count, now)
}

fn status(counted: &CountedLimit<'_>, code: Code, count: Count, now: Seconds) -> Status {
    let remaining = match count {
        Count::KnownOver => 0,
        Count::After(after) => u64::from(counted.requests_per_unit).saturating_sub(after),
    };
    Status {
        code,
        limit: Some(CurrentLimit {
            requests_per_unit: counted.requests_per_unit,
            unit: counted.window.unit,
            name: counted
                .limit
                .map_or_else(String::new, |limit| String::from(&*limit.name)),
        }),
        remaining: u32::try_from(remaining).expect("at most the limit, which has 32 bits"),
        seconds_until_reset: Some(counted.window.seconds_left(now)),
    }
}

/// Returns the number of hits over the limit, or `None` if the descriptor is within it. Counts the
/// others in the delta.
fn hits_over(
    delta: &mut LimitDelta,
    counted: &CountedLimit<'_>,
    count: Count,
    near_limit_ratio: f32,
) -> Option<u64> {
    let hits = counted.hits;
    match count {
        Count::KnownOver => {
            delta.over_limit_with_local_cache = hits;
            Some(hits)
        }
        Count::After(_) if counted.change == CounterChange::Refund => None,
        Count::After(after) => {
            // In stop-increment mode a counter can be read without adding the hits, so that it is
            // below them. The reference's subtraction then wraps around, which puts "before" above
            // every limit. Statistics must be equal to the reference's.
            let reading = CounterReading {
                before: after.wrapping_sub(hits),
                after,
            };
            split_hits(
                delta,
                u64::from(counted.requests_per_unit),
                hits,
                reading,
                near_limit_ratio,
            )
        }
    }
}

/// The value of a counter before and after the hits.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterReading {
    pub(super) before: u64,
    pub(super) after: u64,
}

/// Counts hits as near the limit and within it, and returns the number of hits over it. `None` if
/// the counter is within the limit.
pub(super) fn split_hits(
    delta: &mut LimitDelta,
    limit: u64,
    hits: u64,
    reading: CounterReading,
    near_limit_ratio: f32,
) -> Option<u64> {
    let CounterReading { before, after } = reading;
    let near = near_limit(limit, near_limit_ratio);
    if after > limit {
        if before >= limit {
            return Some(hits);
        }
        delta.near_limit = limit.saturating_sub(near.max(before));
        return Some(after - limit);
    }
    delta.within_limit = hits;
    if after > near {
        delta.near_limit = if before >= near { hits } else { after - near };
    }
    None
}

/// Returns the hits above which a limit is near its end.
#[inline]
pub(super) fn near_limit(limit: u64, near_limit_ratio: f32) -> u64 {
    // The product has 32 bits as in the reference: with 64 bits it would round to another number
    // for some limits.
    (limit as f32 * near_limit_ratio).floor() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Unit, Window};
    use crate::tree::StatsKey;

    fn tally(limit: u32, hits: u64, after: u64, ratio: f32) -> (Option<u64>, u64, u64) {
        let mut tally = LimitDelta {
            stats_key: StatsKey::default(),
            total_hits: 0,
            over_limit: 0,
            near_limit: 0,
            within_limit: 0,
            over_limit_with_local_cache: 0,
            shadow_mode: 0,
            total_negative_hits: 0,
        };
        let reading = CounterReading {
            before: after.wrapping_sub(hits),
            after,
        };
        let over = split_hits(&mut tally, u64::from(limit), hits, reading, ratio);
        (over, tally.near_limit, tally.within_limit)
    }

    #[test]
    fn hits_are_split_as_in_the_reference() {
        // Limit, hits, count after; over, near, within.
        let table = [
            (15, 1, 11, None, 0, 1),
            (15, 1, 13, None, 1, 1),
            (15, 1, 16, Some(1), 0, 0),
            (20, 3, 5, None, 0, 3),
            (8, 2, 7, None, 1, 2),
            (20, 3, 19, None, 3, 3),
            (20, 3, 22, Some(2), 1, 0),
            (20, 7, 22, Some(2), 4, 0),
            (10, 3, 30, Some(3), 0, 0),
            (10, 0, 11, Some(0), 0, 0),
            (10, 0, 10, None, 0, 0),
            (5, 5, 7, Some(2), 1, 0),
            (0, 1, 1, Some(1), 0, 0),
            (0, 0, 0, None, 0, 0),
        ];
        for (limit, hits, after, over, near, within) in table {
            assert_eq!(
                tally(limit, hits, after, 0.8),
                (over, near, within),
                "limit {limit}, {hits} hits, {after} after"
            );
        }
    }

    #[test]
    fn near_limit_is_a_32_bit_product() {
        // 10 x 0.7 is 7 in 32 bits and just below in 64.
        assert_eq!(tally(10, 1, 7, 0.7), (None, 0, 1));
        assert_eq!(tally(10, 1, 8, 0.7), (None, 1, 1));
        // 16,777,217 is not a 32-bit float; it is rounded down before anything else.
        assert_eq!(tally(16_777_217, 1, 16_777_217, 1.0), (None, 1, 1));
    }

    #[test]
    fn a_counter_that_was_not_charged_counts_as_near() {
        // The reference's stop-increment mode: the counter is read as 2, and 3 hits are asked for.
        assert_eq!(tally(10, 3, 2, 0.8), (None, 0, 3));
        assert_eq!(tally(10, 9, 9, 0.8), (None, 1, 9));
        assert_eq!(tally(10, 10, 9, 0.8), (None, 10, 10));
    }

    #[test]
    fn a_refund_is_always_ok() {
        let now = Seconds(30);
        let mut counted = CountedLimit::for_test(
            Window::containing(Unit::Minute, now),
            10,
            4,
            CounterChange::Refund,
        );
        let mut tally = new_delta(&mut counted);
        let status = decide(&counted, Count::After(12), 0.8, now, &mut tally);
        assert_eq!(
            (status.code, status.remaining, status.seconds_until_reset),
            (Code::Ok, 0, Some(30))
        );
        assert_eq!(
            (
                tally.total_hits,
                tally.total_negative_hits,
                tally.over_limit
            ),
            (0, 4, 0)
        );
        let status = decide(&counted, Count::After(7), 0.8, now, &mut tally);
        assert_eq!(status.remaining, 3);
    }
}
