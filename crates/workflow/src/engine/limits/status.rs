//! What limits have given away and why they have no room, for people: asked of the limiter and of the store, so that every server says the
//! same.

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

/// The names of jobs of so many workflows are read at most that are not in memory.
const READ: usize = 10;

/// A limit that has no room for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    /// The limit.
    pub limit: Limit,
    /// When it may have room again.
    pub until: Timestamp,
    /// Of a limit of jobs that run at the same time: how many do.
    pub running: u32,
    /// Those that lose their places first.
    pub holders: Vec<Holding>,
}

/// A job that has a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Its lease.
    pub lease: LeaseRef,
    /// Until when it has the place.
    pub until: Timestamp,
    /// Its name; `None` when many workflows have places, or it could not be read.
    pub job: Option<String>,
}

/// Who has the places of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holdings {
    /// How many they are.
    pub number: u32,
    /// Those that lose their places first.
    pub first: Vec<Holding>,
}

/// What is known of the limits of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Who has the places of each limit of jobs that run at the same time; `None` for rate limits.
    pub holders: Vec<Option<Holdings>>,
    /// The first limit that has no room for a job.
    pub full: Option<Full>,
}

impl Engine {
    /// Of each of these jobs' limits the first that has no room now. Nothing is taken. None: all have. At most so many holders of a limit are told.
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

    /// Looks at the limits of several jobs at once. At most so many holders of a set are told.
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

    /// With the names of the jobs, as far as their graphs are among `known`, in memory, or few.
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

    /// Asks for the rate limits of the jobs that no set keeps waiting.
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

/// The set of a limit of jobs that run at the same time.
fn set(limit: &Limit) -> Option<&str> {
    match limit {
        Limit::Concurrency { name, .. } => Some(name),
        Limit::Units { .. } => None,
    }
}

/// Why a job has no place under a limit; none if it has one.
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

/// How long a limit that is closed stays so at most before somebody asks again.
pub(super) fn patience(after: Duration) -> Duration {
    /// Units may come back to it before its window ends: it is asked again after an eighth of the time, between these.
    const SOONEST: Duration = Duration::from_secs(1);
    const LATEST: Duration = Duration::from_secs(60);
    after.min((after / 8).clamp(SOONEST, LATEST))
}
