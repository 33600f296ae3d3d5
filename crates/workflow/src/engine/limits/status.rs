//! The use of limits and the reasons for denials, for people. The data comes from the limiter and
//! the store, so all servers show the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::unit_counter::UnitRequest;
use crate::codec::StoreError;
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::graph::{Graph, Limit, Limits, Policies};
use crate::model::{LeaseRef, Timestamp, WorkflowId};
use crate::store::PermitHolders;

/// Maximum workflows that are read to name jobs whose graph is not in memory.
const MAX_GRAPH_READS: usize = 10;

/// A limit that denies a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExhaustedLimit {
    /// The limit.
    pub limit: Limit,
    /// The time at which it may have room again.
    pub until: Timestamp,
    /// Number of running jobs under a concurrency limit.
    pub running: u32,
    /// The holders whose permits end first.
    pub holders: Vec<PermitHolder>,
}

/// A job that holds a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitHolder {
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
pub struct HolderList {
    /// Number of holders.
    pub number: u32,
    /// The holders whose permits end first.
    pub first: Vec<PermitHolder>,
}

/// The state of the limits of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitStatus {
    /// The holders under each concurrency limit; `None` for rate limits.
    pub holders: Vec<Option<HolderList>>,
    /// The first limit that denies the job.
    pub exhausted: Option<ExhaustedLimit>,
}

impl Engine {
    /// The first exhausted limit of each of these jobs. `None` if all have room. Nothing is
    /// acquired. At most `max_holders` holders of a limit are listed.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn exhausted_limits(
        &self,
        jobs: &[&Limits],
        max_holders: usize,
        now: Timestamp,
    ) -> Result<Vec<Option<ExhaustedLimit>>, EngineError> {
        Ok(self
            .limit_status(jobs, max_holders, now)
            .await?
            .into_iter()
            .map(|status| status.exhausted)
            .collect())
    }

    /// The state of the limits of several jobs. At most `max_holders` holders of a limit are
    /// listed.
    pub(in crate::engine) async fn limit_status(
        &self,
        jobs: &[&Limits],
        max_holders: usize,
        now: Timestamp,
    ) -> Result<Vec<LimitStatus>, StoreError> {
        let sets: Vec<&str> = jobs
            .iter()
            .flat_map(|limits| limits.concurrency_limits())
            .map(|(set, _)| set.as_str())
            .collect();
        let mut found = self
            .store()
            .permit_holders(&sets, now, max_holders)
            .await
            .into_iter();
        let mut names = HashMap::new();
        let policies = self.policies();
        let mut statuses = Vec::with_capacity(jobs.len());
        for limits in jobs {
            let mut holders = Vec::with_capacity(limits.as_slice().len());
            for limit in limits.as_slice() {
                holders.push(match limit {
                    Limit::Units { .. } => None,
                    Limit::Concurrency { .. } => {
                        let found = found.next().expect("each of the sets was queried")?;
                        Some(self.with_names(found, &mut names).await)
                    }
                });
            }
            let exhausted = limits
                .as_slice()
                .iter()
                .zip(&holders)
                .find_map(|(limit, holders)| {
                    exhausted_concurrency_limit(limit, &policies, holders, now)
                });
            statuses.push(LimitStatus { holders, exhausted });
        }
        self.add_exhausted_rate_limits(jobs, &mut statuses, now)
            .await;
        Ok(statuses)
    }

    /// Adds job names whose graphs are in `known`, in memory, or among the few that are read.
    async fn with_names(
        &self,
        holders: PermitHolders,
        known: &mut HashMap<WorkflowId, Option<Arc<Graph>>>,
    ) -> HolderList {
        let mut first = Vec::with_capacity(holders.first.len());
        for (lease, until) in holders.first {
            if !known.contains_key(&lease.workflow) && known.len() < MAX_GRAPH_READS {
                let graph = self.graph(lease.workflow).await.ok().flatten();
                known.insert(lease.workflow, graph.map(|(graph, _)| graph));
            }
            let graph = match known.get(&lease.workflow) {
                Some(graph) => graph.clone(),
                None => self.core.state_cache.graph(lease.workflow),
            };
            let job = graph.and_then(|graph| Some(graph.jobs.get(lease.job.index())?.name.clone()));
            first.push(PermitHolder { lease, until, job });
        }
        HolderList {
            number: holders.number,
            first,
        }
    }

    /// Probes the rate limits of the jobs that no concurrency limit denies.
    async fn add_exhausted_rate_limits(
        &self,
        jobs: &[&Limits],
        statuses: &mut [LimitStatus],
        now: Timestamp,
    ) {
        let Some(counter) = self.unit_counter() else {
            return;
        };
        let (indexes, requests): (Vec<usize>, Vec<UnitRequest>) = jobs
            .iter()
            .enumerate()
            .filter(|(at, limits)| statuses[*at].exhausted.is_none() && limits.has_rate_limits())
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
        if requests.is_empty() {
            return;
        }
        for (at, granted) in indexes.into_iter().zip(counter.acquire(requests).await) {
            statuses[at].exhausted = granted.exhausted.and_then(|exhausted| {
                Some(ExhaustedLimit {
                    limit: jobs[at].as_slice().get(exhausted.limit_index)?.clone(),
                    until: now + exhausted.available_after,
                    running: 0,
                    holders: Vec::new(),
                })
            });
        }
    }
}

/// The exhausted concurrency limit of a job. `None` if it has a free permit.
fn exhausted_concurrency_limit(
    limit: &Limit,
    policies: &Policies,
    holders: &Option<HolderList>,
    now: Timestamp,
) -> Option<ExhaustedLimit> {
    let (Limit::Concurrency { most, name }, Some(holders)) = (limit, holders) else {
        return None;
    };
    let most = policies.lowest_concurrency(None, None, name, *most);
    let until = holders.first.first().map_or(now, |first| first.until);
    (holders.number >= most).then(|| ExhaustedLimit {
        limit: limit.clone(),
        until,
        running: holders.number,
        holders: holders.first.clone(),
    })
}

/// Time after which an exhausted limit is tried again at the latest.
pub(super) fn retry_delay(after: Duration) -> Duration {
    /// Units may be refunded before a window ends, so the limit is tried after an eighth of the
    /// time, between these bounds.
    const MIN_DELAY: Duration = Duration::from_secs(1);
    const MAX_DELAY: Duration = Duration::from_secs(60);
    after.min((after / 8).clamp(MIN_DELAY, MAX_DELAY))
}
