//! What was done, what was said to whoever did it, and whether that is so.

use std::time::Duration;

use tidegate_workflow::{
    Action, Begin, Claimed, Created, Engine, EngineError, Graph, JobState, LeaseRef, NewWorkflow, Outcome, Report,
    Reported, RestartScope, Snapshot, Status, StoreError, Timestamp, WorkflowId,
};

use super::check::Snapshots;
use super::step::{Step, claim};
use super::world::World;

/// What somebody was told.
#[derive(Debug)]
pub(crate) enum Told {
    Created(Result<Created, EngineError>),
    Claimed(Result<Vec<Claimed>, EngineError>),
    Reported(Result<Reported, EngineError>, Result<Vec<Claimed>, EngineError>),
    Extended(Result<(), EngineError>),
    Status(Result<Status, EngineError>),
    Swept(Result<bool, EngineError>),
    Paused(Result<(), EngineError>),
    Nothing,
}

pub(crate) async fn run(engine: Engine, step: Step, now: Timestamp) -> Told {
    match step {
        Step::Create(graph, begin) => {
            let new = NewWorkflow { graph: *graph, begin, created_at: None };
            Told::Created(engine.create(vec![new], now).await.remove(0))
        }
        Step::Claim(limit) => Told::Claimed(engine.claim(&claim(limit), now).await),
        Step::AbandonedClaim => {
            let claim = claim(2);
            tokio::select! {
                biased;
                _ = engine.claim(&claim, now) => {}
                () = std::future::ready(()) => {}
            }
            Told::Nothing
        }
        Step::ClaimAll => match engine.look_around().await {
            Ok(_) => Told::Claimed(engine.claim(&claim(1_000), now).await),
            Err(error) => Told::Claimed(Err(error.into())),
        },
        Step::Report(lease, outcome, then) => {
            let then = then.map(claim);
            let (mut reported, claimed) = engine.report(vec![Report { lease, outcome }], then.as_ref(), now).await;
            Told::Reported(reported.remove(0), claimed)
        }
        Step::Extend(lease) => {
            let expires = now + Duration::from_secs(30);
            Told::Extended(engine.extend(vec![(lease, expires)], now).await.remove(0))
        }
        Step::Sweep => Told::Swept(engine.sweep(now).await.map_err(EngineError::from)),
        Step::Act(id, action) => Told::Status(engine.act(id, action, now).await),
        Step::PauseQueue(queue, paused) => Told::Paused(engine.set_queue_paused(queue, paused).await),
    }
}

impl World {
    /// What one caller was told is so.
    pub(crate) fn check_told(&self, before: &Snapshots, step: &Step, told: &Told) {
        let error = match told {
            Told::Created(Err(error)) | Told::Reported(Err(error), _) | Told::Extended(Err(error)) => Some(error),
            Told::Status(Err(error))
            | Told::Swept(Err(error))
            | Told::Claimed(Err(error))
            | Told::Paused(Err(error)) => Some(error),
            _ => None,
        };
        if let Some(EngineError::Store(error)) = error {
            assert!(matches!(error, StoreError::Unavailable { .. } | StoreError::Unknown { .. }), "{error:?}");
            assert!(self.faulty);
        }
        let unknown = matches!(error, Some(EngineError::Store(StoreError::Unknown { .. })));
        // Jobs may be leased to a worker that did not hear of it: their leases end.
        let claims = matches!(step, Step::Report(_, _, Some(_)) | Step::Claim(_) | Step::ClaimAll);
        assert!(
            error.is_none() || unknown || claims || versions(before) == versions(&self.snapshots),
            "written: {step:?} {told:?}"
        );
        match (step, told) {
            (Step::Create(graph, begin), Told::Created(created)) => {
                self.check_created(before, (graph, *begin == Begin::Now), created)
            }
            (Step::Report(lease, outcome, _), Told::Reported(reported, _)) => {
                self.check_report(before, (*lease, outcome), reported);
            }
            (Step::Extend(lease), Told::Extended(extended)) if !self.is_down(error) => {
                let job = before.get(&lease.workflow).map(|was| &was.jobs()[lease.job.index()]);
                let held =
                    job.is_some_and(|job| job.token == lease.token && matches!(job.state, JobState::Running { .. }));
                assert_eq!(extended.is_ok(), held, "{job:?}");
            }
            (Step::Act(id, action), Told::Status(status)) if !self.is_down(error) => {
                self.check_acted(&before[id], action, status);
            }
            (Step::ClaimAll, Told::Claimed(Ok(claimed))) if !self.faulty => {
                let ready = before.values().filter(|was| was.meta().status == Status::Running).flat_map(|was| {
                    let jobs = was.jobs().iter().zip(&was.graph().jobs);
                    jobs.filter(|(job, about)| {
                        job.state == JobState::Ready && !self.paused.contains(&about.queue.as_str())
                    })
                });
                assert_eq!(claimed.len(), ready.count(), "all that is ready is handed out");
            }
            (Step::Sweep, _) if !self.faulty => {
                let late = |is: &Snapshot| is.meta().timer.is_some_and(|timer| timer <= self.now);
                assert!(!self.snapshots.values().any(late), "something is due after a sweep");
            }
            _ => {}
        }
    }

    fn check_created(&self, before: &Snapshots, (graph, now): (&Graph, bool), created: &Result<Created, EngineError>) {
        match created {
            Ok(created) => {
                let status = self.snapshots[&created.workflow].meta().status;
                assert_eq!(before.contains_key(&created.workflow), created.existing);
                assert_eq!(created.status, status);
                assert!(created.existing || now == (status != Status::Pending));
            }
            Err(EngineError::KeyMismatch { workflow, .. }) => {
                assert_eq!(before[workflow].graph().idempotency_key, graph.idempotency_key);
            }
            Err(error) => assert!(self.is_down(Some(error)), "{error:?}"),
        }
    }

    fn check_acted(&self, was: &Snapshot, action: &Action, status: &Result<Status, EngineError>) {
        assert_eq!(status.is_ok(), allowed(was, action), "{action:?} {status:?}");
        match status {
            Ok(_) if *action == Action::Delete => assert!(!self.snapshots.contains_key(&was.id())),
            Ok(status) => assert_eq!(self.snapshots[&was.id()].meta().status, *status),
            Err(_) => {}
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
        let was = before.get(&lease.workflow).map(|was| &was.jobs()[lease.job.index()]);
        match reported {
            Ok(reported) => {
                let was = was.expect("it is there");
                assert_eq!(was.token, lease.token);
                assert_eq!(reported.already, !matches!(was.state, JobState::Running { .. }), "{was:?}");
                let now = &self.snapshots[&lease.workflow].jobs()[lease.job.index()];
                if !reported.already && matches!(outcome, Outcome::Succeeded { .. }) {
                    assert_eq!((now.state, reported.job), (JobState::Succeeded, JobState::Succeeded));
                }
            }
            Err(EngineError::Refused(_)) => assert_ne!(was.expect("it is there").token, lease.token),
            Err(EngineError::NoWorkflow { .. }) => assert!(was.is_none()),
            Err(error) => assert!(self.is_down(Some(error)), "{error:?}"),
        }
    }
}

fn versions(snapshots: &Snapshots) -> Vec<(WorkflowId, u64, u32)> {
    snapshots.iter().map(|(id, snapshot)| (*id, snapshot.meta().version, snapshot.meta().writer)).collect()
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
            let failed = jobs.iter().any(|job| matches!(job.state, JobState::Failed | JobState::Cancelled));
            started && (failed || !status.is_over())
        }
        Action::Restart { jobs: names, scope } => {
            let mut chosen: Vec<_> = names.iter().map(|name| was.graph().find(name).unwrap()).collect();
            if *scope == RestartScope::AndDescendants {
                chosen.extend(was.graph().descendants(&chosen));
            }
            started && !chosen.iter().any(|job| jobs[job.index()].state.is_active())
        }
        Action::RetryJob(job) => started && matches!(state(job), JobState::Failed | JobState::Cancelled),
        Action::SkipJob(job) => !matches!(state(job), JobState::Succeeded | JobState::Running { .. }),
        Action::CancelJob(job) => !state(job).is_over() || state(job) == JobState::Cancelled,
        Action::Delete => status.is_over() || !started,
        Action::MarkSucceeded { .. } | Action::Keep(_) => true,
    }
}
