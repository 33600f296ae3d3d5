//! Attempts that a request ended, for the observer of attempts.

use super::answer::Answer;
use super::request::Request;
use crate::engine::attempts::{AttemptEnd, AttemptOutcome, Attempts};
use crate::graph::definition::OnFailure;
use crate::id::JobIndex;
use crate::state::{Job, JobState, LeaseEnd};
use crate::time::Timestamp;
use crate::transition::event::Event;
use crate::transition::outcome::Outcome;
use crate::workflow::Workflow;

/// An attempt that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    job: JobIndex,
    /// The job as it was during the attempt.
    during: Job,
    /// Cause of the end, unless the worker reported it.
    by: Option<LeaseEnd>,
}

/// Returns the running jobs whose attempts an event may end, as they are before it.
pub(super) fn may_end(workflow: &Workflow, event: &Event, now: Timestamp) -> Vec<(JobIndex, Job)> {
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
        Event::Claim { .. } | Event::GiveBack { .. } | Event::Extend { .. } | Event::Start => {
            Vec::new()
        }
        Event::Pause | Event::Resume | Event::Keep(_) | Event::Delete(_) => Vec::new(),
        _ => (0..workflow.jobs.len())
            .map(|at| JobIndex(at as u32))
            .filter(running)
            .map(cloned)
            .collect(),
    }
}

impl Ended {
    /// Returns the jobs of `before` whose attempts `event` has ended.
    pub(super) fn of(
        workflow: &Workflow,
        event: &Event,
        before: Vec<(JobIndex, Job)>,
    ) -> Vec<Self> {
        let ended = |(job, during): (JobIndex, Job)| {
            let now = workflow.job(job);
            if matches!(now.state, JobState::Running { .. }) {
                return None;
            }
            let reported = matches!(event, Event::Report { job: reported, .. } if *reported == job);
            Some(Self {
                job,
                during,
                by: now.ended_by.filter(|_| !reported),
            })
        };
        before.into_iter().filter_map(ended).collect()
    }

    fn outcome<'a>(&self, request: &'a Request) -> Option<AttemptOutcome<'a>> {
        match (self.by, request) {
            (Some(by), _) => Some(AttemptOutcome::Revoked(by)),
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
                Outcome::GivenBack { .. } | Outcome::NotBegun => AttemptOutcome::GivenBack,
                Outcome::Throttled { .. } => AttemptOutcome::Throttled,
                Outcome::Crashed(_) => AttemptOutcome::Crashed,
            }),
            (None, _) => None,
        }
    }
}

/// Notifies the observer of the attempts that a request ended.
pub(super) fn tell(
    attempts: &Attempts,
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
            attempts.tell(&AttemptEnd {
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
