//! Readiness and status of the server, for `/readyz` and `/v1/status`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use serde::Serialize;
use tidegate_workflow::{Engine, Member, Partition, StoreError, StoreFailure, Timestamp};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
#[cfg(test)]
use utoipa::ToSchema;

use super::server_state::{RefusedConfiguration, ServerState, Stores};
use crate::http::auth::Scope;
use crate::http::json;
use crate::http::time::Rfc3339;
use crate::state::app_state::{AppState, HandlerResult, RequestContext};
use crate::state::config_status::Loads;
use crate::state::probe_cache::Availability;
use crate::state::store_gate::StoreState;

/// Time for which a probe waits for an answer of the store.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Which server this is.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Version {
    /// The version of the server. What follows its `+` is the revision that it was built of.
    version: &'static str,
    /// The version of the API, as in its paths.
    api: &'static str,
}

/// Status of rate limits and workflows.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ServerStatus<'a> {
    /// Whether calls of rate limits are answered. `no` when `/healthcheck` of the HTTP port says
    /// so, and when the store of counters failed the latest calls, within the last minute; `partly`
    /// when it failed some in the last 10 s. Without calls, the status is `yes`.
    limits: Availability,
    workflows: WorkflowReadiness,
    state: ServerState,
    /// The latest time at which it accepts calls; null unless it is `draining`. It may end earlier, at a second signal.
    #[cfg_attr(test, schema(required))]
    drains_until: Option<Rfc3339>,
    /// The version of the server, as in `/v1/version`.
    version: &'static str,
    started_at: Rfc3339,
    store: Stores<'a>,
    /// The latest load of the configuration of rate limits, when it was refused: that of before is in force. Null when nothing is wrong.
    #[cfg_attr(test, schema(required))]
    refused_configuration: Option<RefusedConfiguration<'a>>,
}

/// Whether workflows can be served: their store, its reads and its writes.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = WorkflowStatus))]
struct WorkflowReadiness {
    /// False where the server has no workflows and shows limits only (`TIDEGATE_STORE_URL=off`).
    enabled: bool,
    /// Whether `/readyz` says ready.
    ready: bool,
    /// Whether the store is open. False: it cannot be opened, or no call has needed it so far.
    open: bool,
    /// Why it cannot be opened; null when it can.
    #[cfg_attr(test, schema(required))]
    reason: Option<String>,
    reads: Availability,
    writes: Availability,
    /// How many partitions the store has; 0 while it is not open.
    partitions: u16,
    /// Failures of the store, by partition.
    troubles: Vec<PartitionTrouble>,
    /// How far the clock of this machine is ahead of that of the Redis with the workflows, which they follow, in milliseconds; negative when it is
    /// behind. Rate limits follow this machine's. Null where there is no other clock, and while the store is not open.
    #[cfg_attr(test, schema(required))]
    clock_skew_ms: Option<i64>,
    /// By what acknowledged work could be lost, and what to do about it, a sentence each: settings of Redis, looked at every minute.
    risks: Vec<String>,
    /// The servers that use the store and have reported lately; empty where only this one can.
    servers: Vec<Server>,
}

impl WorkflowReadiness {
    /// Whether all workflows can be served.
    fn works(&self) -> bool {
        self.ready && self.reads == Availability::Up && self.writes == Availability::Up
    }
}

/// A server that uses the same store.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct Server {
    /// Its name until it ends.
    id: String,
    /// Whether it is the one that answers.
    answers: bool,
    version: String,
    /// Where its API listens, in its own words.
    address: String,
    began_at: Rfc3339,
    /// When it last said that it lives; each does so every two seconds.
    #[serde(rename = "heard_at")] // plain: a field of the API
    last_heartbeat_at: Rfc3339,
    /// The partitions that are assigned to that server: it runs their timers, and takes their jobs
    /// first.
    home_partitions: Vec<u16>,
}

impl Server {
    fn all(engine: &Engine) -> Vec<Self> {
        let shown = |member: Member| Self {
            id: member.id.to_string(),
            answers: member.id == engine.server_id(),
            version: member.description.version,
            address: member.description.address,
            began_at: Rfc3339(member.started_at),
            last_heartbeat_at: Rfc3339(member.last_heartbeat),
            home_partitions: member
                .partitions
                .into_iter()
                .map(|partition| partition.0)
                .collect(),
        };
        engine.members().into_iter().map(shown).collect()
    }
}

/// Failure in some partitions.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct PartitionTrouble {
    /// Their numbers.
    partitions: Vec<u16>,
    /// Whether what is there can be read.
    reads: bool,
    /// Whether what workflows need can be written. What has expired may be removed all the same.
    writes: bool,
    /// In the words of the store.
    reason: String,
}

/// Current state of the store, as far as it is known.
struct StoreProbe {
    partitions: u16,
    is_silent: bool,
    failures: BTreeMap<Partition, StoreFailure>,
}

impl StoreProbe {
    /// Probes the store, unless another request has just done so.
    async fn probe(api: &AppState, engine: &Engine) -> Self {
        if api.probe_cache.begin_if_due(Instant::now()) {
            let is_silent = probe_partitions(engine).await;
            api.probe_cache.is_silent.store(is_silent, Relaxed);
        }
        Self {
            partitions: engine.store().partitions(),
            is_silent: api.probe_cache.is_silent.load(Relaxed),
            failures: engine.store_failures(),
        }
    }

    fn availability(&self, has_failed: impl Fn(&StoreFailure) -> bool) -> Availability {
        if self.is_silent {
            Availability::Down
        } else {
            let failing = self
                .failures
                .values()
                .filter(|trouble| has_failed(trouble))
                .count();
            Availability::from_failures(failing, self.partitions.into())
        }
    }

    fn reads(&self) -> Availability {
        self.availability(|trouble| trouble.reads.is_some())
    }

    fn writes(&self) -> Availability {
        self.availability(|trouble| !can_write(trouble))
    }

    /// Groups the partitions by their failure.
    fn grouped_failures(&self) -> Vec<PartitionTrouble> {
        let mut shown: Vec<PartitionTrouble> = Vec::new();
        for (partition, trouble) in &self.failures {
            let reads = trouble.reads.is_none();
            let writes = can_write(trouble);
            let reason = reason(trouble);
            let is_same = |other: &&mut PartitionTrouble| {
                (other.reads, other.writes, &other.reason) == (reads, writes, &reason)
            };
            match shown.iter_mut().find(is_same) {
                Some(others) => others.partitions.push(partition.0),
                None => shown.push(PartitionTrouble {
                    partitions: vec![partition.0],
                    reads,
                    writes,
                    reason,
                }),
            }
        }
        shown
    }
}

/// Whether a workflow's data can be written. That needs rows that can be removed.
fn can_write(trouble: &StoreFailure) -> bool {
    *trouble == StoreFailure::default()
}

fn reason(trouble: &StoreFailure) -> String {
    let first = trouble
        .reads
        .as_ref()
        .or(trouble.writes.as_ref())
        .or(trouble.removals.as_ref());
    first.map(StoreError::to_string).unwrap_or_default()
}

/// Probes the partitions without a known failure. The others are probed regularly anyway. Returns
/// whether no partition has answered in time.
async fn probe_partitions(engine: &Engine) -> bool {
    let troubles = engine.store_failures();
    let mut probes = JoinSet::new();
    for partition in (0..engine.store().partitions())
        .map(Partition)
        .filter(|at| !troubles.contains_key(at))
    {
        let engine = engine.clone();
        probes.spawn(async move { engine.probe(partition).await });
    }
    let mut has_answer = probes.is_empty();
    let all_probes = async {
        while probes.join_next().await.is_some() {
            has_answer = true;
        }
    };
    let _late = timeout(PROBE_TIMEOUT, all_probes).await;
    !has_answer
}

/// Returns the cause for which no workflow is served, for probes without a token. The reason is in
/// the log, in the answers to calls, and in the status.
async fn unready_cause(api: &AppState) -> Option<&'static str> {
    if !(api.hooks.serving)() {
        return Some("not serving\n");
    }
    match (api.store_gate.state(), api.store_gate.engine()) {
        (StoreState::Failed(_), _) => Some("the store of workflows cannot be opened\n"),
        (StoreState::Open, Some(engine)) => {
            let probe = StoreProbe::probe(api, engine).await;
            match (probe.reads(), probe.writes()) {
                (Availability::Down, _) => Some("the store does not answer\n"),
                (_, Availability::Down) => Some("the store refuses writes\n"),
                // With some partitions, this server is still of use. A part of the store that is
                // gone is gone for all servers.
                _ => None,
            }
        }
        // Without a store, the first call opens one.
        (StoreState::Open | StoreState::NotRequested, _) => None,
    }
}

pub(crate) async fn version(request: &RequestContext<'_>) -> HandlerResult {
    Ok(json::ok(&Version {
        version: request.api.hooks.version,
        api: "v1",
    }))
}

pub(crate) async fn healthz(_request: &RequestContext<'_>) -> HandlerResult {
    Ok("ok\n".into_response())
}

pub(crate) async fn readyz(request: &RequestContext<'_>) -> HandlerResult {
    Ok(match unready_cause(request.api).await {
        None => "ready\n".into_response(),
        Some(cause) => (StatusCode::SERVICE_UNAVAILABLE, cause).into_response(),
    })
}

pub(crate) async fn status(request: &RequestContext<'_>) -> HandlerResult {
    let api = request.api;
    let ready = unready_cause(api).await.is_none();
    let limits = limit_availability(api);
    let workflows = workflow_readiness(api, ready).await;
    let loads = (api.hooks.loads)();
    let drains_until = (api.hooks.drains_until)();
    Ok(json::ok(&ServerStatus {
        state: state_in_a_word(limits, &workflows, &loads, drains_until),
        limits,
        workflows,
        drains_until: drains_until.map(Rfc3339),
        version: api.hooks.version,
        started_at: loads.counting_since.into(),
        store: Stores::new(&api.hooks.stores),
        refused_configuration: RefusedConfiguration::from_loads(&loads),
    }))
}

fn state_in_a_word(
    limits: Availability,
    workflows: &WorkflowReadiness,
    loads: &Loads,
    drains_until: Option<Timestamp>,
) -> ServerState {
    if drains_until.is_some() {
        ServerState::Draining
    } else if limits == Availability::Up && workflows.works() && loads.refused.is_none() {
        ServerState::Ok
    } else {
        ServerState::Degraded
    }
}

fn limit_availability(api: &AppState) -> Availability {
    if (api.hooks.serving)() {
        (api.hooks.counter_store_health)()
    } else {
        Availability::Down
    }
}

async fn workflow_readiness(api: &AppState, ready: bool) -> WorkflowReadiness {
    let state = api.store_gate.state();
    let unopened = if matches!(state, StoreState::Failed(_)) {
        Availability::Down
    } else {
        Availability::Up
    };
    let shown = WorkflowReadiness {
        enabled: api.access.scope == Scope::Full,
        ready,
        open: matches!(state, StoreState::Open),
        reason: match state {
            StoreState::Failed(reason) => Some(reason.to_string()),
            StoreState::Open | StoreState::NotRequested => None,
        },
        reads: unopened,
        writes: unopened,
        partitions: 0,
        troubles: Vec::new(),
        clock_skew_ms: api.metrics.clock_skew().map(|micros| micros / 1_000),
        risks: api.metrics.risks(),
        servers: Vec::new(),
    };
    let Some(engine) = api.store_gate.engine() else {
        return shown;
    };
    let probe = StoreProbe::probe(api, engine).await;
    WorkflowReadiness {
        reads: probe.reads(),
        writes: probe.writes(),
        partitions: probe.partitions,
        troubles: probe.grouped_failures(),
        servers: Server::all(engine),
        ..shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(failing: &[(u16, &str, &str)]) -> StoreProbe {
        let error = |reason: &str| {
            let reason = reason.to_owned();
            (!reason.is_empty()).then_some(StoreError::Unavailable { reason })
        };
        let trouble = |&(at, reads, writes): &(u16, &str, &str)| {
            (
                Partition(at),
                StoreFailure {
                    reads: error(reads),
                    writes: error(writes),
                    removals: None,
                },
            )
        };
        StoreProbe {
            partitions: 4,
            is_silent: false,
            failures: failing.iter().map(trouble).collect(),
        }
    }

    #[test]
    fn a_store_works_as_long_as_one_partition_does() {
        let check = |failing: &[(u16, &str, &str)], reads: Availability, writes: Availability| {
            let store = store(failing);
            assert_eq!(
                (store.reads(), store.writes()),
                (reads, writes),
                "{failing:?}"
            );
        };
        check(&[], Availability::Up, Availability::Up);
        check(
            &[(1, "gone", "gone")],
            Availability::Degraded,
            Availability::Degraded,
        );
        check(
            &[0, 1, 2, 3].map(|at| (at, "", "full")),
            Availability::Up,
            Availability::Down,
        );
        check(
            &[0, 1, 2, 3].map(|at| (at, "gone", "")),
            Availability::Down,
            Availability::Down,
        );
        let silent = StoreProbe {
            is_silent: true,
            ..store(&[])
        };
        assert_eq!(silent.reads(), Availability::Down);
    }

    #[test]
    fn partitions_with_equal_failures_are_grouped() {
        let shown =
            store(&[(0, "", "full"), (1, "gone", "gone"), (3, "", "full")]).grouped_failures();
        let shown: Vec<_> = shown
            .iter()
            .map(|one| (one.partitions.as_slice(), one.reads, one.writes))
            .collect();
        assert_eq!(
            shown,
            [(&[0, 3][..], true, false), (&[1][..], false, false)]
        );
    }
}
