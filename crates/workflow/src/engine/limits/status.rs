//! The use of limits and the reasons for denials, for people. The data comes from the limiter and
//! the store, so all servers show the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::unit_counter::UnitRequest;
use crate::codec::lease::LeaseRef;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::graph::Graph;
use crate::graph::limits::{Limit, Limits};
use crate::graph::policies::Policies;
use crate::id::WorkflowId;
use crate::store::error::StoreError;
use crate::store::permits::PermitHolders;
use crate::time::Timestamp;

/// Maximum workflows that are read to name jobs whose graph is not in memory.
const READ: usize = 10;

/// A limit that denies a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    /// The limit.
    pub limit: Limit,
    /// The time at which it may have room again.
    pub until: Timestamp,
    /// Number of running jobs under a concurrency limit.
    pub running: u32,
    /// The holders whose permits end first.
    pub holders: Vec<Holding>,
}

/// A job that holds a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Its lease.
    pub lease: LeaseRef,
    /// The time at which the permit ends.
    pub until: Timestamp,
    /// The name of the job. `None` if there are many workflows among the holders, or if the graph
    /// cannot be read.
    pub job: Option<String>,
}

/// The holders of the permits of a concurrency limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holdings {
    /// Number of holders.
    pub number: u32,
    /// The holders whose permits end first.
    pub first: Vec<Holding>,
}

/// The state of the limits of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The holders under each concurrency limit; `None` for rate limits.
    pub holders: Vec<Option<Holdings>>,
    /// The first limit that denies the job.
    pub full: Option<Full>,
}

impl Engine {
    /// The first exhausted limit of each of these jobs. `None` if all have room. Nothing is
    /// acquired. At most `max_holders` holders of a limit are listed.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn full_limits(
        &self,
        jobs: &[&Limits],
        told: usize,
        now: Timestamp,
    ) -> Result<Vec<Option<Full>>, EngineError> {
        Ok(self
            .look(jobs, told, now)
            .await?
            .into_iter()
            .map(|look| look.full)
            .collect())
    }

    /// The state of the limits of several jobs. At most `max_holders` holders of a limit are
    /// listed.
    pub(in crate::engine) async fn look(
        &self,
        jobs: &[&Limits],
        told: usize,
        now: Timestamp,
    ) -> Result<Vec<Look>, StoreError> {
        let sets: Vec<&str> = jobs
            .iter()
            .flat_map(|limits| limits.each())
            .filter_map(set)
            .collect();
        let mut found = self.store().holders(&sets, now, told).await.into_iter();
        let mut names = HashMap::new();
        let terms = self.terms();
        let mut looks = Vec::with_capacity(jobs.len());
        for limits in jobs {
            let mut holders = Vec::with_capacity(limits.each().len());
            for limit in limits.each() {
                let found = set(limit).and_then(|_| found.next()).transpose()?;
                holders.push(match found {
                    Some(found) => Some(self.with_names(found, &mut names).await),
                    None => None,
                });
            }
            let full = limits
                .each()
                .iter()
                .zip(&holders)
                .find_map(|(limit, holders)| no_place(limit, &terms, holders, now));
            looks.push(Look { holders, full });
        }
        self.look_for_units(jobs, &mut looks, now).await;
        Ok(looks)
    }

    /// Adds job names whose graphs are in `known`, in memory, or among the few that are read.
    async fn with_names(
        &self,
        holders: PermitHolders,
        known: &mut HashMap<WorkflowId, Option<Arc<Graph>>>,
    ) -> Holdings {
        let mut first = Vec::with_capacity(holders.first.len());
        for (lease, until) in holders.first {
            if !known.contains_key(&lease.workflow) && known.len() < READ {
                let graph = self.graph(lease.workflow).await.ok().flatten();
                known.insert(lease.workflow, graph.map(|(graph, _)| graph));
            }
            let graph = match known.get(&lease.workflow) {
                Some(graph) => graph.clone(),
                None => self.core.states.graph(lease.workflow),
            };
            let job = graph.and_then(|graph| Some(graph.jobs.get(lease.job.index())?.name.clone()));
            first.push(Holding { lease, until, job });
        }
        Holdings {
            number: holders.number,
            first,
        }
    }

    /// Probes the rate limits of the jobs that no concurrency limit denies.
    async fn look_for_units(&self, jobs: &[&Limits], looks: &mut [Look], now: Timestamp) {
        let Some(units) = self.units() else { return };
        let counted = |limits: &Limits| {
            limits
                .each()
                .iter()
                .any(|limit| matches!(limit, Limit::Units { .. }))
        };
        let (places, wanted): (Vec<usize>, Vec<UnitRequest>) = jobs
            .iter()
            .enumerate()
            .filter(|(at, limits)| looks[*at].full.is_none() && counted(limits))
            .map(|(at, limits)| {
                (
                    at,
                    UnitRequest {
                        limits: (*limits).clone().into(),
                        jobs: 0,
                    },
                )
            })
            .unzip();
        if wanted.is_empty() {
            return;
        }
        for (at, granted) in places.into_iter().zip(units.acquire(wanted).await) {
            let full = |limit: &Limit, after: Duration| Full {
                limit: limit.clone(),
                until: now + after,
                running: 0,
                holders: Vec::new(),
            };
            looks[at].full = granted
                .no_room
                .and_then(|none| Some(full(jobs[at].each().get(none.limit)?, none.after)));
        }
    }
}

/// The permit set of a concurrency limit.
fn set(limit: &Limit) -> Option<&str> {
    match limit {
        Limit::Concurrency { name, .. } => Some(name),
        Limit::Units { .. } => None,
    }
}

/// The exhausted concurrency limit of a job. `None` if it has a free permit.
fn no_place(
    limit: &Limit,
    terms: &Policies,
    holders: &Option<Holdings>,
    now: Timestamp,
) -> Option<Full> {
    let (Limit::Concurrency { most, name }, Some(holders)) = (limit, holders) else {
        return None;
    };
    let most = terms.lowest_concurrency(None, None, name, *most);
    let until = holders.first.first().map_or(now, |first| first.until);
    let running = holders.number;
    let holders = holders.first.clone();
    (running >= most).then(|| Full {
        limit: limit.clone(),
        until,
        running,
        holders,
    })
}

/// Time after which an exhausted limit is tried again at the latest.
pub(super) fn patience(after: Duration) -> Duration {
    /// Units may be refunded before a window ends, so the limit is tried after an eighth of the
    /// time, between these bounds.
    const SOONEST: Duration = Duration::from_secs(1);
    const LATEST: Duration = Duration::from_secs(60);
    after.min((after / 8).clamp(SOONEST, LATEST))
}
