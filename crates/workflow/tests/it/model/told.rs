//! What was done, what was said to whoever did it, and whether that is so.

mod check;

use std::time::Duration;

use tidegate_workflow::{
    Action, Claimed, Created, Engine, EngineError, Graph, HeartbeatQuery, Job, JobState, LeaseRef,
    NewWorkflow, Outcome, Report, ReportAnswer, Rerun, RestartScope, ServerDescription, Snapshot,
    StartMode, Status, StoreError, Timestamp, WorkflowId,
};

use super::check::Snapshots;
use super::step::{Asked, MOST_URGENT, Step};
use super::world::World;

/// A workflow, and the position of a job in it.
type LeaseOf = (WorkflowId, usize);

/// How often a worker that gets nothing is woken before it is clear that it never sleeps.
const WAKE_UPS: usize = 40;
/// So much older than those at home here a job of another home must be to go first.
const LEFT_TO_HOME: Duration = Duration::from_secs(2);
/// More turns of the runtime than anything takes that was promised at once.
const TURNS: u8 = 12;

/// What somebody was told.
#[derive(Debug)]
pub(crate) enum Told {
    Created(Result<Created, EngineError>),
    Claimed(Result<Vec<Claimed>, EngineError>),
    /// A worker that waited, how often it was woken, and what it got in the end.
    Waited(usize, Result<Vec<Claimed>, EngineError>),
    Reported(
        Result<ReportAnswer, EngineError>,
        Result<Vec<Claimed>, EngineError>,
    ),
    /// The leases of the answer that was lost on its way, and the answer to the second report.
    Repeated(
        Vec<LeaseRef>,
        Result<ReportAnswer, EngineError>,
        Result<Vec<Claimed>, EngineError>,
    ),
    Many(
        Vec<Result<ReportAnswer, EngineError>>,
        Result<Vec<Claimed>, EngineError>,
    ),
    Extended(Result<(), EngineError>),
    Status(Result<Status, EngineError>),
    Swept(Result<bool, EngineError>),
    Paused(Result<(), EngineError>),
    Beaten(Result<(), EngineError>),
    Nothing,
}

impl Told {
    /// The error of what failed as a whole.
    pub(crate) fn error(&self) -> Option<&EngineError> {
        match self {
            Self::Created(Err(error))
            | Self::Reported(Err(error), _)
            | Self::Extended(Err(error)) => Some(error),
            Self::Repeated(_, Err(error), _)
            | Self::Status(Err(error))
            | Self::Swept(Err(error)) => Some(error),
            Self::Beaten(Err(error)) => Some(error),
            Self::Claimed(Err(error)) | Self::Waited(_, Err(error)) | Self::Paused(Err(error)) => {
                Some(error)
            }
            // One of them may have been written, whatever became of the others.
            Self::Many(reported, _) if reported.iter().all(Result::is_err) => {
                let mut errors = reported
                    .iter()
                    .filter_map(|reported| reported.as_ref().err());
                let unknown = |error: &&EngineError| {
                    matches!(error, EngineError::Store(StoreError::Unknown { .. }))
                };
                errors.clone().find(unknown).or_else(|| errors.next())
            }
            _ => None,
        }
    }

    /// The jobs that a worker got.
    pub(crate) fn claimed(&self) -> &[Claimed] {
        match self {
            Self::Claimed(Ok(claimed)) | Self::Waited(_, Ok(claimed)) => claimed,
            Self::Reported(_, Ok(claimed))
            | Self::Repeated(_, _, Ok(claimed))
            | Self::Many(_, Ok(claimed)) => claimed,
            _ => &[],
        }
    }
}

pub(crate) async fn run(engine: Engine, step: Step, now: Timestamp) -> Told {
    match step {
        Step::Create(graph, begin) => {
            let new = NewWorkflow {
                graph: *graph,
                start: begin,
                created_at: None,
            };
            Told::Created(engine.create(vec![new], now).await.remove(0))
        }
        Step::Claim(asked) => Told::Claimed(engine.claim(&asked.claim(), now).await),
        Step::ClaimAll(asked) => Told::Claimed(claim_all(&engine, &asked, now).await),
        Step::Wait(asked) => wait(&engine, &asked, now).await,
        Step::Report(lease, outcome, then) => {
            let (mut reported, claimed) =
                report(&engine, vec![(lease, outcome)], then.as_ref(), now).await;
            Told::Reported(reported.remove(0), claimed)
        }
        Step::ReportTwice(lease, outcome, then) => {
            let lost = vec![(lease, outcome.clone())];
            let (_, first) = report(&engine, lost, Some(&then), now).await;
            let unheard = first.iter().flatten();
            let unheard = unheard.map(|claimed| claimed.lease).collect();
            let (mut reported, claimed) =
                report(&engine, vec![(lease, outcome)], Some(&then), now).await;
            Told::Repeated(unheard, reported.remove(0), claimed)
        }
        Step::ReportMany(reports, then) => {
            let (reported, claimed) = report(&engine, reports, then.as_ref(), now).await;
            Told::Many(reported, claimed)
        }
        Step::Extend(lease, length) => Told::Extended(
            engine
                .extend(vec![(lease, now + length)], now)
                .await
                .remove(0),
        ),
        Step::Sweep => Told::Swept(engine.sweep(now).await.map_err(EngineError::from)),
        Step::Beat => {
            let server = ServerDescription::default();
            let beat = engine
                .heartbeat(&server, now, HeartbeatQuery::MembersOnly)
                .await;
            Told::Beaten(beat.map(|_| ()).map_err(EngineError::from))
        }
        Step::Act(id, action) => Told::Status(engine.act(id, action, now).await),
        Step::PauseQueue(queue, paused) => {
            Told::Paused(engine.set_queue_paused(&queue, paused).await)
        }
        Step::Abandoned(step, after) => {
            let doing = Box::pin(run(engine, *step, now));
            tokio::select! {
                biased;
                told = doing => told,
                () = turns(after) => Told::Nothing,
            }
        }
    }
}

/// Claims after a look everywhere: a server looks for what workers wait for.
async fn claim_all(
    engine: &Engine,
    asked: &Asked,
    now: Timestamp,
) -> Result<Vec<Claimed>, EngineError> {
    let waits = engine.arrival(&asked.queues);
    engine.poll_store().await?;
    let claimed = engine.claim(&asked.claim(), now).await;
    drop(waits);
    claimed
}

async fn report(
    engine: &Engine,
    reports: Vec<(LeaseRef, Outcome)>,
    then: Option<&Asked>,
    now: Timestamp,
) -> (
    Vec<Result<ReportAnswer, EngineError>>,
    Result<Vec<Claimed>, EngineError>,
) {
    let reports = reports
        .into_iter()
        .map(|(lease, outcome)| Report { lease, outcome })
        .collect();
    engine
        .report(reports, then.map(Asked::claim).as_ref(), now)
        .await
}

/// As a server does for a worker that waits: claims, and when there is nothing sleeps until somebody wakes it. The server looks at the
/// store from time to time.
async fn wait(engine: &Engine, asked: &Asked, now: Timestamp) -> Told {
    let claim = asked.claim();
    for woken in 0..WAKE_UPS {
        let mut arrival = Box::pin(engine.arrival_for(&claim, &[]));
        match engine.claim(&claim, now).await {
            Ok(claimed) if claimed.is_empty() => {}
            done => return Told::Waited(woken, done),
        }
        if let Err(error) = engine.poll_store().await {
            return Told::Waited(woken, Err(error.into()));
        }
        tokio::select! {
            biased;
            leases = &mut arrival => {
                if !leases.is_empty() {
                    let leases = engine.fill_up(leases, &claim, &[], now).await;
                    return Told::Waited(woken, engine.deliver(leases).await);
                }
            }
            () = turns(TURNS) => return Told::Waited(woken, Ok(Vec::new())),
        }
    }
    Told::Waited(WAKE_UPS, Ok(Vec::new()))
}

async fn turns(number: u8) {
    for _ in 0..number {
        tokio::task::yield_now().await;
    }
}
