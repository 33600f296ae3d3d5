//! Long poll of a worker for jobs.

use std::time::Duration;

use tidegate_workflow::{Claim, ClaimMode, EngineError, LeaseRef, LeasedBatch};
use tokio::time::{Instant, sleep_until};

use crate::state::app_state::AppState;
use crate::workers::WorkerProcess;

/// Returns the claim mode for a wait of this duration.
pub(crate) fn claim_mode(wait: Duration) -> ClaimMode {
    if wait.is_zero() {
        ClaimMode::Immediate
    } else {
        ClaimMode::LongPoll
    }
}

/// Claims the jobs that are ready, or else waits for jobs.
pub(crate) async fn claim_or_wait(
    api: &AppState,
    claim: &Claim,
    wait: Duration,
    process: &WorkerProcess<'_>,
) -> Result<LeasedBatch, EngineError> {
    let mode = claim_mode(wait);
    let engine = api.engine();
    let batch = engine.lease_except(claim, &[], mode, api.now()).await?;
    if batch.is_empty() {
        return self::claim(api, claim, &[], wait, process).await;
    }
    Ok(batch)
}

/// Claims again when work arrives, until there are jobs, the time is over, or the server or the
/// worker drains. Jobs of the leases in `except` do not count: the worker has just returned them.
pub(crate) async fn claim(
    api: &AppState,
    claim: &Claim,
    except: &[LeaseRef],
    wait: Duration,
    process: &WorkerProcess<'_>,
) -> Result<LeasedBatch, EngineError> {
    let until = Instant::now() + wait;
    let drain = &api.hooks.drain;
    if wait.is_zero() || drain.is_cancelled() {
        return Ok(LeasedBatch::default());
    }
    let engine = api.engine();
    let drained = api.worker_registry.drained(process);
    tokio::pin!(drained);
    loop {
        // Work that arrives between the claim and the wait counts, too.
        let arrival = engine.arrival_for(claim, except);
        let leases = engine
            .lease_except(claim, except, ClaimMode::LongPoll, api.now())
            .await?;
        if !leases.is_empty() || drain.is_cancelled() || Instant::now() >= until {
            return Ok(leases);
        }
        tokio::select! {
            // A worker that was woken claims even if its time is over: no other one was woken for
            // that job.
            biased;
            leases = arrival => {
                if !leases.is_empty() {
                    return Ok(engine.fill_up(leases, claim, except, api.now()).await);
                }
            }
            () = sleep_until(until) => return Ok(LeasedBatch::default()),
            () = drain.cancelled() => return Ok(LeasedBatch::default()),
            () = &mut drained => return Ok(LeasedBatch::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use tidegate_workflow::{
        Definition, Engine, EngineOptions, Graph, JobDefinition, NewWorkflow, SimulatedStore,
        StartMode, Store, Timestamp,
    };
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::http::auth::Access;
    use crate::state::server_hooks::ServerHooks;

    const NOW: Timestamp = Timestamp::from_micros(1_795_000_000_000_000);

    /// A job that arrived in the last moment of a worker's wait was left: no other waiting worker
    /// was woken for it.
    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_woken_as_its_time_ends_claims() {
        let store = Store::Simulated(SimulatedStore::new(4));
        let engine = Engine::start(store, EngineOptions::default())
            .await
            .unwrap();
        let access = Access {
            tokens: None,
            anonymous: true,
            scope: crate::http::auth::Scope::Full,
            max_body: 0,
            max_streams: 0,
        };
        let api = AppState::new(access, Arc::default(), ServerHooks::for_test(NOW));
        api.store_gate.open(engine.clone());
        let wanted = Claim {
            queues: vec!["default".into()],
            handlers: None,
            worker: "worker".into(),
            limit: 1,
            lease: Duration::from_secs(30),
        };
        let jobs = vec![JobDefinition::new("job", "handler")];
        let graph = Graph::build(Definition {
            name: "test".into(),
            jobs,
            ..Definition::default()
        })
        .unwrap();
        let wait = Duration::from_millis(40);
        let process = WorkerProcess {
            worker: "worker",
            started: None,
        };
        let mut claimed = pin!(claim(&api, &wanted, &[], wait, &process));
        assert!(timeout(wait / 2, &mut claimed).await.is_err(), "it waits");
        engine
            .create(
                vec![NewWorkflow {
                    graph,
                    start: StartMode::Now,
                    created_at: None,
                }],
                NOW,
            )
            .await
            .remove(0)
            .unwrap();
        advance(wait).await;
        let leases = claimed.await;
        assert!(
            !leases.unwrap().is_empty(),
            "woken, and went without the job"
        );
    }
}
