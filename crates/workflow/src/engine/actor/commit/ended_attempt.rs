//! Attempts that a request ended, for the observer of attempts.

use crate::engine::actor::answer::Answer;
use crate::engine::actor::request::Request;
use crate::engine::context::attempts::{AttemptEnd, AttemptObserver, AttemptOutcome};
use crate::graph::OnFailure;
use crate::machine::{Event, Outcome, Workflow};
use crate::model::workflow_state::Job;
use crate::model::{JobIndex, JobState, LeaseEnd, Timestamp};

/// An attempt that ended.
#[derive(Debug)]
pub(crate) struct EndedAttempt {
    job: JobIndex,
    /// The job as it was during the attempt.
    during: Job,
    /// Cause of the end, unless the worker reported it.
    cause: Option<LeaseEnd>,
}

/// Returns the running jobs whose attempts an event may end, as they are before it.
pub(crate) fn possibly_ended(
    workflow: &Workflow,
    event: &Event,
    now: Timestamp,
) -> Vec<(JobIndex, Job)> {
    let running = |job: &JobIndex| matches!(workflow.job(*job).state, JobState::Running { .. });
    let cloned = |job: JobIndex| (job, workflow.job(job).clone());
    let fails_fast = workflow.graph.on_failure == OnFailure::FailFast;
    match event {
        Event::Report { job, outcome, .. }
            if !(fails_fast && matches!(outcome, Outcome::Failed { .. } | Outcome::Crashed(_))) =>
        {
            Some(*job).filter(running).map(cloned).into_iter().collect()
        }
        Event::Tick { served_since } if !fails_fast => workflow
            .due_by(now, *served_since)
            .into_iter()
            .filter(running)
            .map(cloned)
            .collect(),
        // A lease that did not reach its worker was no attempt.
        Event::Claim { .. }
        | Event::ReturnUndelivered { .. }
        | Event::Extend { .. }
        | Event::Start => Vec::new(),
        Event::Pause | Event::Resume | Event::SetRetention(_) | Event::Delete(_) => Vec::new(),
        _ => (0..workflow.jobs.len())
            .map(|at| JobIndex(at as u32))
            .filter(running)
            .map(cloned)
            .collect(),
    }
}

impl EndedAttempt {
    /// Returns the jobs of `before` whose attempts `event` has ended.
    pub(crate) fn from_transition(
        workflow: &Workflow,
        event: &Event,
        before: Vec<(JobIndex, Job)>,
    ) -> Vec<Self> {
        let ended_attempt = |(job, during): (JobIndex, Job)| {
            let now = workflow.job(job);
            if matches!(now.state, JobState::Running { .. }) {
                return None;
            }
            let reported = matches!(event, Event::Report { job: reported, .. } if *reported == job);
            Some(Self {
                job,
                during,
                cause: now.ended_by.filter(|_| !reported),
            })
        };
        before.into_iter().filter_map(ended_attempt).collect()
    }

    fn outcome<'a>(&self, request: &'a Request) -> Option<AttemptOutcome<'a>> {
        match (self.cause, request) {
            (Some(cause), _) => Some(AttemptOutcome::Revoked(cause)),
            // A job that was not begun had no attempt.
            (
                None,
                Request::Report {
                    outcome: Outcome::NotBegun,
                    ..
                },
            ) => None,
            (None, Request::Report { outcome, .. }) => Some(match outcome {
                Outcome::Succeeded { .. } => AttemptOutcome::Succeeded,
                Outcome::Failed { failure, .. } => AttemptOutcome::Failed {
                    kind: &failure.kind,
                    message: &failure.message,
                },
                Outcome::Returned { .. } | Outcome::NotBegun => AttemptOutcome::GivenBack,
                Outcome::Throttled { .. } => AttemptOutcome::Throttled,
                Outcome::Crashed(_) => AttemptOutcome::Crashed,
            }),
            (None, _) => None,
        }
    }
}

/// Notifies the observer of the attempts that a request ended.
pub(super) fn notify_ended(
    attempts: &AttemptObserver,
    workflow: &Workflow,
    request: &Request,
    at: Timestamp,
    answer: &Answer,
) {
    for ended in &answer.ended {
        if let Some(outcome) = ended.outcome(request) {
            let job = ended.job;
            let during = &ended.during;
            let graph = &*workflow.graph;
            attempts.notify(&AttemptEnd {
                workflow: workflow.id,
                graph,
                job,
                during,
                at,
                outcome,
            });
        }
    }
}
