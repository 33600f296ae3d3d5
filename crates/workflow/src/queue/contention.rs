//! Whether other servers claim the jobs of the partitions that are assigned to them. If they do, a
//! server without local jobs leaves the next jobs to them: claims of contended jobs write without
//! effect.

use std::time::Duration;

use super::QueueCache;
use super::cache::ClaimEnd;
use crate::model::Timestamp;

/// Time for which the outcome of a claim counts.
const RECENT: Duration = Duration::from_secs(1);

/// Whether other servers claim the jobs of partitions that are not assigned to this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contention {
    /// This server lately leased remote jobs and lost none.
    None,
    /// This server claimed no remote job lately.
    Unknown,
    /// Another server was lately faster than a claim of this server.
    Contended,
}

/// Times of the latest won and lost claims of remote jobs.
#[derive(Debug, Default)]
pub(super) struct RecentClaims {
    last_won: Option<Timestamp>,
    last_lost: Option<Timestamp>,
}

impl RecentClaims {
    pub(super) fn record(&mut self, end: ClaimEnd, now: Timestamp) {
        match end {
            ClaimEnd::Leased => self.last_won = Some(now),
            ClaimEnd::Unknown => self.last_lost = Some(now),
            ClaimEnd::Failed => {}
        }
    }

    fn contention(&self, now: Timestamp) -> Contention {
        let is_recent = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) <= RECENT);
        match (is_recent(self.last_lost), is_recent(self.last_won)) {
            (true, _) => Contention::Contended,
            (false, true) => Contention::None,
            (false, false) => Contention::Unknown,
        }
    }
}

impl QueueCache {
    /// Whether other servers claim remote jobs of one of these queues.
    pub(crate) fn contention(&self, names: &[String]) -> Contention {
        let by_name = self.lock();
        let now = self.now();
        let contention = |name: &String| {
            by_name
                .get(name.as_str())
                .map(|queue| queue.remote_claims.contention(now))
        };
        names
            .iter()
            .filter_map(contention)
            .max()
            .unwrap_or(Contention::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_claims_count_for_a_while() {
        let at = |millis: u64| Timestamp::from_micros(millis * 1_000);
        let mut claims = RecentClaims::default();
        assert_eq!(claims.contention(at(0)), Contention::Unknown);
        claims.record(ClaimEnd::Leased, at(100));
        assert_eq!(claims.contention(at(1_100)), Contention::None);
        claims.record(ClaimEnd::Unknown, at(1_000));
        claims.record(ClaimEnd::Leased, at(1_500));
        assert_eq!(
            (claims.contention(at(2_000)), claims.contention(at(2_001))),
            (Contention::Contended, Contention::None)
        );
        assert_eq!(claims.contention(at(2_501)), Contention::Unknown);
    }
}
