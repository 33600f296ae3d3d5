//! Readiness and status of the server, for `/readyz` and `/v1/status`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use serde::Serialize;
use tidegate_workflow::{Engine, Member, Partition, StoreError, Trouble};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::json;
use crate::http::request::{Answer, AppState, RequestContext};
use crate::http::time::Rfc3339;
use crate::store_gate::StoreState;

/// Shortest time between two probes of the store, whatever the number of requests.
const APART: Duration = Duration::from_secs(1);
/// Time for which a probe waits for an answer of the store.
const PATIENCE: Duration = Duration::from_millis(1_200);

/// Result of the latest probe of the store.
#[derive(Debug, Default)]
pub(crate) struct ProbeCache(Mutex<ProbeResult>);

#[derive(Debug, Clone, Copy, Default)]
struct ProbeResult {
    at: Option<Instant>,
    /// Whether no partition answered in time.
    silent: bool,
}

impl ProbeCache {
    /// Returns whether a probe is due, and marks it as started.
    fn turn(&self, now: Instant) -> bool {
        let mut looked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = looked.at.is_none_or(|at| now - at >= APART);
        if turn {
            looked.at = Some(now);
        }
        turn
    }

    fn note(&self, silent: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).silent = silent;
    }

    fn is_silent(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).silent
    }
}

/// Whether something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Works))]
pub enum Availability {
    /// All of it, as far as is known.
    #[serde(rename = "yes")]
    Up,
    /// Some of it: some partitions, or some calls.
    #[serde(rename = "partly")]
    Degraded,
    /// Nothing of it.
    #[serde(rename = "no")]
    Down,
}

impl Availability {
    fn of(failing: usize, all: usize) -> Self {
        match failing {
            0 => Self::Up,
            some if some < all => Self::Degraded,
            _ => Self::Down,
        }
    }
}

/// Which server this is.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Version {
    /// The version of the server. What follows its `+` is the revision that it was built of.
    version: &'static str,
    /// The version of the API, as in its paths.
    api: &'static str,
}

/// Status of rate limits and workflows.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ServerStatus {
    /// Whether calls of rate limits are answered. `no` when `/healthcheck` of the HTTP port says
    /// so, and when the store of counters failed the latest calls, within the last minute; `partly`
    /// when it failed some in the last 10 s. Without calls, the status is `yes`.
    limits: Availability,
    workflows: WorkflowStatus,
}

/// Status of workflows.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct WorkflowStatus {
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

/// A server that uses the same store.
#[derive(Debug, Serialize)]
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
    heard_at: Rfc3339,
    /// The partitions that are assigned to that server: it runs their timers, and takes their jobs
    /// first.
    home_partitions: Vec<u16>,
}

impl Server {
    fn all(engine: &Engine) -> Vec<Self> {
        let shown = |Member {
                         id,
                         about,
                         began,
                         last_heartbeat: heard,
                         partitions: homes,
                         ..
                     }| Self {
            id: id.to_string(),
            answers: id == engine.server(),
            version: about.version,
            address: about.address,
            began_at: Rfc3339(began),
            heard_at: Rfc3339(heard),
            home_partitions: homes.into_iter().map(|partition| partition.0).collect(),
        };
        engine.servers().into_iter().map(shown).collect()
    }
}

/// Failure in some partitions.
#[derive(Debug, Serialize)]
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
struct Store {
    partitions: u16,
    silent: bool,
    troubles: BTreeMap<Partition, Trouble>,
}

impl Store {
    /// Probes the store, unless another request has just done so.
    async fn look(api: &AppState, engine: &Engine) -> Self {
        if api.looks.turn(Instant::now()) {
            api.looks.note(ask(engine).await);
        }
        Self {
            partitions: engine.store().partitions(),
            silent: api.looks.is_silent(),
            troubles: engine.troubles(),
        }
    }

    fn works(&self, fails: impl Fn(&Trouble) -> bool) -> Availability {
        if self.silent {
            Availability::Down
        } else {
            let failing = self
                .troubles
                .values()
                .filter(|trouble| fails(trouble))
                .count();
            Availability::of(failing, self.partitions.into())
        }
    }

    fn reads(&self) -> Availability {
        self.works(|trouble| trouble.reads.is_some())
    }

    fn writes(&self) -> Availability {
        self.works(|trouble| !writes(trouble))
    }

    /// Groups the partitions by their failure.
    fn shown(&self) -> Vec<PartitionTrouble> {
        let mut shown: Vec<PartitionTrouble> = Vec::new();
        for (partition, trouble) in &self.troubles {
            let reads = trouble.reads.is_none();
            let writes = writes(trouble);
            let reason = reason(trouble);
            let same = |other: &&mut PartitionTrouble| {
                (other.reads, other.writes, &other.reason) == (reads, writes, &reason)
            };
            match shown.iter_mut().find(same) {
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
fn writes(trouble: &Trouble) -> bool {
    *trouble == Trouble::default()
}

fn reason(trouble: &Trouble) -> String {
    let first = trouble
        .reads
        .as_ref()
        .or(trouble.writes.as_ref())
        .or(trouble.removals.as_ref());
    first.map(StoreError::to_string).unwrap_or_default()
}

/// Probes the partitions without a known failure. The others are probed regularly anyway. Returns
/// whether no partition has answered in time.
async fn ask(engine: &Engine) -> bool {
    let troubles = engine.troubles();
    let mut asked = JoinSet::new();
    for partition in (0..engine.store().partitions())
        .map(Partition)
        .filter(|at| !troubles.contains_key(at))
    {
        let engine = engine.clone();
        asked.spawn(async move { engine.probe(partition).await });
    }
    let mut answered = asked.is_empty();
    let each = async {
        while asked.join_next().await.is_some() {
            answered = true;
        }
    };
    let _late = timeout(PATIENCE, each).await;
    !answered
}

/// Returns the cause for which no workflow is served, for probes without a token. The reason is in
/// the log, in the answers to calls, and in the status.
async fn cause(api: &AppState) -> Option<&'static str> {
    if !(api.host.serving)() {
        return Some("not serving\n");
    }
    match (api.opening.standing(), api.opening.engine()) {
        (StoreState::Failed(_), _) => Some("the store of workflows cannot be opened\n"),
        (StoreState::Open, Some(engine)) => {
            let store = Store::look(api, engine).await;
            match (store.reads(), store.writes()) {
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

pub(crate) async fn version(ask: &RequestContext<'_>) -> Answer {
    Ok(json::ok(&Version {
        version: ask.api.host.version,
        api: "v1",
    }))
}

pub(crate) async fn healthz(_ask: &RequestContext<'_>) -> Answer {
    Ok("ok\n".into_response())
}

pub(crate) async fn readyz(ask: &RequestContext<'_>) -> Answer {
    Ok(match cause(ask.api).await {
        None => "ready\n".into_response(),
        Some(cause) => (StatusCode::SERVICE_UNAVAILABLE, cause).into_response(),
    })
}

pub(crate) async fn status(ask: &RequestContext<'_>) -> Answer {
    let api = ask.api;
    let ready = cause(api).await.is_none();
    let limits = if (api.host.serving)() {
        (api.host.counting)()
    } else {
        Availability::Down
    };
    let (open, reason) = match api.opening.standing() {
        StoreState::Open => (true, None),
        StoreState::Failed(reason) => (false, Some(reason.to_string())),
        StoreState::NotRequested => (false, None),
    };
    let (reads, writes, partitions, troubles) = match api.opening.engine() {
        Some(engine) => {
            let store = Store::look(api, engine).await;
            (
                store.reads(),
                store.writes(),
                store.partitions,
                store.shown(),
            )
        }
        None => {
            let works = if reason.is_none() {
                Availability::Up
            } else {
                Availability::Down
            };
            (works, works, 0, Vec::new())
        }
    };
    let clock_skew_ms = api.activity.clock_skew().map(|micros| micros / 1_000);
    let risks = api.activity.risks();
    let servers = api.opening.engine().map(Server::all).unwrap_or_default();
    let workflows = WorkflowStatus {
        ready,
        open,
        reason,
        reads,
        writes,
        partitions,
        troubles,
        clock_skew_ms,
        risks,
        servers,
    };
    Ok(json::ok(&ServerStatus { limits, workflows }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(failing: &[(u16, &str, &str)]) -> Store {
        let error = |reason: &str| {
            let reason = reason.to_owned();
            (!reason.is_empty()).then_some(StoreError::Unavailable { reason })
        };
        let trouble = |&(at, reads, writes): &(u16, &str, &str)| {
            (
                Partition(at),
                Trouble {
                    reads: error(reads),
                    writes: error(writes),
                    removals: None,
                },
            )
        };
        Store {
            partitions: 4,
            silent: false,
            troubles: failing.iter().map(trouble).collect(),
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
        let silent = Store {
            silent: true,
            ..store(&[])
        };
        assert_eq!(silent.reads(), Availability::Down);
    }

    #[test]
    fn partitions_with_the_same_trouble_are_told_together() {
        let shown = store(&[(0, "", "full"), (1, "gone", "gone"), (3, "", "full")]).shown();
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
