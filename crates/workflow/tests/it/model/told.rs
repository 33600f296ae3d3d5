//! What was done, what was said to whoever did it, and whether that is so.

use std::time::Duration;

use tidegate_workflow::{
    AboutServer, Action, Asks, Begin, Claimed, Created, Engine, EngineError, Graph, Job, JobState,
    LeaseRef, NewWorkflow, Outcome, Report, Reported, Rerun, RestartScope, Snapshot, Status,
    StoreError, Timestamp, WorkflowId,
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
        Result<Reported, EngineError>,
        Result<Vec<Claimed>, EngineError>,
    ),
    /// The leases of the answer that was lost on its way, and the answer to the second report.
    Repeated(
        Vec<LeaseRef>,
        Result<Reported, EngineError>,
        Result<Vec<Claimed>, EngineError>,
    ),
    Many(
        Vec<Result<Reported, EngineError>>,
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
                begin,
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
            let (_, first) =
                report(&engine, vec![(lease, outcome.clone())], Some(&then), now).await;
            let unheard = first
                .iter()
                .flatten()
                .map(|claimed| claimed.lease)
                .collect();
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
            let beat = engine
                .beat(&AboutServer::default(), now, Asks::Nothing)
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
    engine.look_around().await?;
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
    Vec<Result<Reported, EngineError>>,
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
        if let Err(error) = engine.look_around().await {
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

impl World {
    /// What one caller was told is so.
    pub(crate) fn check_told(&self, before: &Snapshots, step: &Step, told: &Told) {
        let error = told.error();
        if let Some(EngineError::Store(error)) = error {
            assert!(
                matches!(
                    error,
                    StoreError::Unavailable { .. } | StoreError::Unknown { .. }
                ),
                "{error:?}"
            );
            assert!(self.weather.is_bad(), "the store works, and yet: {error:?}");
        }
        let unknown = matches!(error, Some(EngineError::Store(StoreError::Unknown { .. })));
        // Jobs may be leased to a worker that did not hear of it: their leases end.
        assert!(
            error.is_none()
                || unknown
                || step.may_claim()
                || versions(before) == versions(&self.snapshots),
            "written: {step:?} {told:?}"
        );
        match (step.deed(), told) {
            (Step::Create(graph, begin), Told::Created(created)) => {
                self.check_created(before, (graph, *begin == Begin::Now), created)
            }
            (Step::Report(lease, outcome, _), Told::Reported(reported, _)) => {
                self.check_report(before, (*lease, outcome), reported);
            }
            (Step::ReportTwice(lease, ..), Told::Repeated(unheard, reported, claimed)) => {
                self.check_repeated(before, *lease, unheard, (reported, claimed));
            }
            (Step::Extend(lease, length), Told::Extended(extended)) if !self.is_down(error) => {
                self.check_extended(before, (*lease, *length), extended);
            }
            (Step::Act(id, action), Told::Status(status)) if !self.is_down(error) => {
                self.check_acted(&before[id], action, status);
            }
            (Step::ClaimAll(asked), Told::Claimed(Ok(claimed))) if !self.weather.is_bad() => {
                let ready = self.ready(before, &asked.queues);
                assert_eq!(
                    claimed.len(),
                    ready.len(),
                    "all that is ready is handed out"
                );
            }
            (Step::Wait(asked), Told::Waited(woken, claimed)) => {
                self.check_waited(before, asked, *woken, claimed)
            }
            (Step::Sweep, _) if !self.weather.is_bad() => {
                let late = |(id, is): (&WorkflowId, &Snapshot)| {
                    self.is_home_of(id) && is.meta().timer.is_some_and(|timer| timer <= self.now)
                };
                assert!(
                    !self.snapshots.iter().any(late),
                    "something is due after a sweep"
                );
            }
            _ => {}
        }
    }

    /// Whether the server of the step is the home of the workflow's partition.
    fn is_home_of(&self, id: &WorkflowId) -> bool {
        let engine = &self.engines[self.at];
        let servers = engine.servers();
        let own = servers.iter().find(|server| server.id == engine.server());
        own.is_none_or(|own| own.homes.contains(&id.partition()))
    }

    /// The jobs that a worker may have, the most urgent first.
    fn ready(&self, before: &Snapshots, queues: &[String]) -> Vec<LeaseOf> {
        let mut ready = Vec::new();
        for was in before
            .values()
            .filter(|was| was.meta().status == Status::Running)
        {
            for (at, (job, about)) in was.jobs().iter().zip(was.graph().jobs.iter()).enumerate() {
                let wanted = queues.contains(&about.queue) && !self.paused.contains(&about.queue);
                if wanted && job.state == JobState::Ready {
                    // What is at home elsewhere is left to its home for a while.
                    let left = if self.is_home_of(&was.id()) {
                        Duration::ZERO
                    } else {
                        LEFT_TO_HOME
                    };
                    let since = job.ready_at.unwrap();
                    let urgency = (u8::MAX - about.priority, since + left, since);
                    ready.push((urgency, (was.id(), at)));
                }
            }
        }
        ready.sort_unstable();
        ready.into_iter().map(|(_, job)| job).collect()
    }

    /// A worker that waits for a queue with a ready job gets one when it is woken, and it is the most urgent one. A worker for whom
    /// there is none sleeps.
    fn check_waited(
        &self,
        before: &Snapshots,
        asked: &Asked,
        woken: usize,
        claimed: &Result<Vec<Claimed>, EngineError>,
    ) {
        // Each stale row may cost a wake-up, and then it is gone.
        let allowed = if self.lost.is_empty() && !self.weather.is_bad() {
            1
        } else {
            WAKE_UPS - 1
        };
        assert!(
            woken <= allowed,
            "a worker was woken {woken} times and got {claimed:?}"
        );
        let Ok(claimed) = claimed else { return };
        let ready = self.ready(before, &asked.queues);
        if self.weather.is_bad() {
            return;
        }
        // Before its first look a server may not know that a queue is paused.
        assert!(
            !claimed.is_empty() || ready.is_empty(),
            "woken {woken} times, it sleeps beside {ready:?}"
        );
        if woken > 0 {
            let got: Vec<LeaseOf> = claimed
                .iter()
                .map(|got| (got.lease.workflow, got.lease.job.index()))
                .collect();
            assert_eq!(got, ready[..got.len()], "not the most urgent of {ready:?}");
            assert_eq!(got.len(), ready.len().min(asked.limit), "of {ready:?}");
        }
    }

    /// A worker that reports again hears what the first answer said.
    fn check_repeated(
        &self,
        before: &Snapshots,
        lease: LeaseRef,
        unheard: &[LeaseRef],
        (reported, claimed): (
            &Result<Reported, EngineError>,
            &Result<Vec<Claimed>, EngineError>,
        ),
    ) {
        let (Ok(reported), Ok(claimed)) = (reported, claimed) else {
            return;
        };
        if self.weather.is_bad() {
            return;
        }
        assert!(reported.already, "{reported:?}");
        let was_ready = |of: &LeaseRef| {
            before
                .get(&of.workflow)
                .is_some_and(|was| was.jobs()[of.job.index()].state == JobState::Ready)
        };
        // What came from the queue goes back when its lease ends, as after any claim that was not heard. What the report made ready enters
        // the queue when something more urgent is there, or was when the server last looked.
        let urgent = |of: &LeaseRef| {
            before[&of.workflow].graph().jobs[of.job.index()].priority == MOST_URGENT
                || *of == lease.successor(of.job)
        };
        let handed_over = unheard
            .iter()
            .filter(|of| of.workflow == lease.workflow && !was_ready(of) && urgent(of));
        for lost in handed_over {
            assert!(
                claimed.iter().any(|again| again.lease == *lost),
                "{lost} is leased to nobody: {claimed:?}"
            );
        }
    }

    fn check_created(
        &self,
        before: &Snapshots,
        (graph, now): (&Graph, bool),
        created: &Result<Created, EngineError>,
    ) {
        match created {
            Ok(created) => {
                let status = self.snapshots[&created.workflow].meta().status;
                assert_eq!(before.contains_key(&created.workflow), created.existing);
                assert_eq!(created.status, status);
                assert!(created.existing || now == (status != Status::Pending));
            }
            // The key of a workflow that was lost is still there.
            Err(EngineError::Contended { workflow }) if self.lost.contains(workflow) => {}
            Err(EngineError::KeyMismatch { workflow, .. }) => {
                assert_eq!(
                    before[workflow].graph().idempotency_key,
                    graph.idempotency_key
                );
            }
            Err(error) => assert!(self.is_down(Some(error)), "{error:?}"),
        }
    }

    fn check_acted(&self, was: &Snapshot, action: &Action, status: &Result<Status, EngineError>) {
        assert_eq!(
            status.is_ok(),
            allowed(was, action),
            "{action:?} {status:?}"
        );
        match status {
            Ok(_) if *action == Action::Delete => assert!(!self.snapshots.contains_key(&was.id())),
            Ok(status) => assert_eq!(self.snapshots[&was.id()].meta().status, *status),
            Err(_) => {}
        }
    }

    /// Whoever has the job has it for so long from now on, be that more or less than before.
    fn check_extended(
        &self,
        before: &Snapshots,
        (lease, length): (LeaseRef, Duration),
        extended: &Result<(), EngineError>,
    ) {
        let was = before
            .get(&lease.workflow)
            .map(|was| &was.jobs()[lease.job.index()]);
        let held = was.is_some_and(|job| {
            job.token == lease.token && matches!(job.state, JobState::Running { .. })
        });
        assert_eq!(extended.is_ok(), held, "{was:?}");
        if held {
            let is = &self.snapshots[&lease.workflow].jobs()[lease.job.index()];
            assert_eq!(
                is.state,
                JobState::Running {
                    expires: self.now + length
                },
                "{was:?}"
            );
        }
    }

    fn is_down(&self, error: Option<&EngineError>) -> bool {
        matches!(error, Some(EngineError::Store(_)))
    }

    fn check_report(
        &self,
        before: &Snapshots,
        (lease, outcome): (LeaseRef, &Outcome),
        reported: &Result<Reported, EngineError>,
    ) {
        let was = before
            .get(&lease.workflow)
            .map(|was| &was.jobs()[lease.job.index()]);
        match reported {
            Ok(reported) => {
                let was = was.expect("it is there");
                assert_eq!(was.token, lease.token, "{was:?}");
                assert_eq!(
                    reported.already,
                    !matches!(was.state, JobState::Running { .. }),
                    "{was:?}"
                );
                assert!(
                    !reported.already || may_follow(was, outcome),
                    "{outcome:?} was dropped: {was:?}"
                );
                let now = &self.snapshots[&lease.workflow].jobs()[lease.job.index()];
                let again = was.rerun == Rerun::AfterEnd;
                if !reported.already && !again && matches!(outcome, Outcome::Succeeded { .. }) {
                    assert_eq!(
                        (now.state, reported.job),
                        (JobState::Succeeded, JobState::Succeeded)
                    );
                }
            }
            Err(EngineError::Refused(_)) => {
                let was = was.expect("it is there");
                let runs = matches!(was.state, JobState::Running { .. });
                // Another report came before.
                let other = !runs && !may_follow(was, outcome);
                assert!(was.token != lease.token || other, "{was:?}");
            }
            Err(EngineError::NoWorkflow { .. }) => assert!(was.is_none()),
            Err(error) => assert!(self.is_down(Some(error)), "{error:?}"),
        }
    }
}

/// Whether a report with this outcome may have left a job, or its next attempt, so.
fn may_follow(job: &Job, outcome: &Outcome) -> bool {
    let state = job.state;
    if job.ended_by.is_some() {
        // It has ended with the report, and runs again by its rule.
        return matches!(
            outcome,
            Outcome::Succeeded { .. } | Outcome::Failed { .. } | Outcome::Crashed(_)
        );
    }
    match outcome {
        Outcome::Succeeded { .. } => state == JobState::Succeeded,
        Outcome::Failed { .. } | Outcome::Crashed(_) => {
            state == JobState::Failed || !state.is_over()
        }
        Outcome::Throttled { .. } | Outcome::GivenBack { .. } | Outcome::NotBegun => {
            !state.is_over() && !matches!(state, JobState::Running { .. })
        }
    }
}

fn versions(snapshots: &Snapshots) -> Vec<(WorkflowId, u64, u32)> {
    snapshots
        .iter()
        .map(|(id, snapshot)| (*id, snapshot.meta().version, snapshot.meta().writer))
        .collect()
}

/// Whether an operator may do this now.
fn allowed(was: &Snapshot, action: &Action) -> bool {
    let (status, jobs) = (was.meta().status, was.jobs());
    let state = |name: &String| jobs[was.graph().find(name).unwrap().index()].state;
    let started = status != Status::Pending;
    match action {
        Action::Start => !started,
        Action::Cancel => !status.is_over() || status == Status::Cancelled,
        Action::Pause | Action::Resume => matches!(status, Status::Running | Status::Paused),
        Action::RetryFailed => {
            let failed = jobs
                .iter()
                .any(|job| matches!(job.state, JobState::Failed | JobState::Cancelled));
            started && (failed || !status.is_over())
        }
        Action::Restart { jobs: names, scope } => {
            let mut chosen: Vec<_> = names
                .iter()
                .map(|name| was.graph().find(name).unwrap())
                .collect();
            if *scope == RestartScope::AndDescendants {
                chosen.extend(was.graph().descendants(&chosen));
            }
            let waits = chosen
                .iter()
                .all(|job| jobs[job.index()].state == JobState::Waiting);
            let stuck = chosen[..names.len()]
                .iter()
                .any(|&job| was.is_doomed(job) || was.is_blocked(job));
            started
                && !(waits && stuck)
                && !chosen.iter().any(|job| jobs[job.index()].state.is_active())
        }
        Action::RetryJob(job) => {
            started && matches!(state(job), JobState::Failed | JobState::Cancelled)
        }
        Action::SkipJob(job) => {
            !matches!(state(job), JobState::Succeeded | JobState::Running { .. })
        }
        Action::CancelJob(job) => !state(job).is_over() || state(job) == JobState::Cancelled,
        Action::Delete => status.is_over() || !started,
        Action::MarkSucceeded { .. } | Action::Keep(_) => true,
    }
}
