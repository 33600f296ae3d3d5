//! Why a ready job has no room under its limits, for people: asked of the limiter and of the store, so that every server says the same.

use std::time::Duration;

use super::units::{NoRoom, Wanted};
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::graph::limits::{Limit, Limits};
use crate::record::lease::LeaseRef;
use crate::time::Timestamp;

/// The most holders of a set that are named.
const NAMED: usize = 100;

/// A limit that has no room for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    /// The limit.
    pub limit: Limit,
    /// When it may have room again.
    pub until: Timestamp,
    /// Of a limit of jobs that run at the same time: how many do.
    pub running: u32,
    /// Some of them, by their leases, with the time until which each has its place.
    pub holders: Vec<(LeaseRef, Timestamp)>,
}

impl Engine {
    /// The first limit that has no room for a job with these limits now. Nothing is taken. None: all have.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn full_limit(&self, limits: &Limits, now: Timestamp) -> Result<Option<Full>, EngineError> {
        for limit in limits.each() {
            let Limit::Concurrency { most, name } = limit else { continue };
            let holders = self.store().holders(&[name], now, NAMED).await.pop().transpose()?.unwrap_or_default();
            if holders.number >= *most {
                let until = holders.first.first().map_or(now, |(_, until)| *until);
                return Ok(Some(Full { limit: limit.clone(), until, running: holders.number, holders: holders.first }));
            }
        }
        let Some(NoRoom { limit, after, .. }) = self.no_units(limits).await else { return Ok(None) };
        let full = |limit: &Limit| Full { limit: limit.clone(), until: now + after, running: 0, holders: Vec::new() };
        Ok(limits.each().get(limit).map(full))
    }

    /// The rate limit that has no units for a job.
    async fn no_units(&self, limits: &Limits) -> Option<NoRoom> {
        let units = self.units()?;
        let counted = limits.each().iter().any(|limit| matches!(limit, Limit::Units { .. }));
        let wanted = Wanted { limits: limits.clone().into(), jobs: 0 };
        if counted { units.take(vec![wanted]).await.pop()?.no_room } else { None }
    }
}

/// How long a limit that is closed stays so at most before somebody asks again.
pub(super) fn patience(after: Duration) -> Duration {
    /// Units may come back to it before its window ends: it is asked again after an eighth of the time, between these.
    const SOONEST: Duration = Duration::from_secs(1);
    const LATEST: Duration = Duration::from_secs(60);
    after.min((after / 8).clamp(SOONEST, LATEST))
}
